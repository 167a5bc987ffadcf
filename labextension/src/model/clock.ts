/** How far the server's clock is from this browser's, by the messages that come from there. */
const SAMPLES = 30;
/** A jump by more than this is one of the clocks being set, and no delay. */
const JUMP_MS = 60_000;

export class ServerClock {
  /** Server time minus this browser's clock, in milliseconds. */
  get offsetMs(): number {
    return this.samplesMs.length > 0 ? Math.max(...this.samplesMs) : 0;
  }

  /** A message was made at `serverUs` by the server's clock, and is here at `nowMs` by this one. */
  heard(serverUs: number, nowMs: number): void {
    // Its way makes a sample too small by the delay, never too large: of some, the largest is the nearest.
    const sampleMs = serverUs / 1000 - nowMs;
    if (Math.abs(sampleMs - this.offsetMs) > JUMP_MS) {
      this.samplesMs = [];
    }
    this.samplesMs.push(sampleMs);
    if (this.samplesMs.length > SAMPLES) {
      this.samplesMs.shift();
    }
  }

  private samplesMs: number[] = [];
}
