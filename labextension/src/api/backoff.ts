/** How long to wait before the next try: doubling, with jitter, so that the pages of a restarted server do not come all at once. */
const FIRST_MS = 500;
const MOST_MS = 15_000;

export class Backoff {
  /** The time to wait before the next try. */
  nextMs(): number {
    const wholeMs = Math.min(MOST_MS, FIRST_MS * 2 ** this.tries);
    this.tries += 1;
    return wholeMs * (0.5 + Math.random() / 2);
  }

  /** It worked: the next trouble begins with the shortest wait. */
  reset(): void {
    this.tries = 0;
  }

  /** Failed tries in a row. */
  get failures(): number {
    return this.tries;
  }

  private tries = 0;
}
