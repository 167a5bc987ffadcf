/** What a screen reader is told of the caller's own jobs: changes of state, in few words, and not too often. */
import { TranslationBundle } from '@jupyterlab/translation';

import { JobView } from '../api/schemas';
import { jobTitle, stateLabel } from './words';

/** More changes than these at once are told as counts. */
const MOST_NAMED = 3;

/** Gathers changes until somebody takes them. */
export class Announcer {
  constructor(private readonly trans: TranslationBundle) {}

  /** Whether there is anything to tell. */
  get hasNews(): boolean {
    return this.news.size > 0;
  }

  /** The jobs as they are now. What is seen for the first time is no news, unless it was submitted since. */
  see(jobs: readonly JobView[]): void {
    const isFirst = this.states === null;
    const before = this.states ?? new Map<string, string>();
    const now = new Map<string, string>();
    for (const job of jobs) {
      if (!job.mine) {
        continue;
      }
      now.set(job.id, job.state);
      const isNewer = job.number > this.newest;
      if (before.has(job.id) ? before.get(job.id) !== job.state : isNewer) {
        this.news.set(job.id, job);
      }
    }
    if (isFirst) {
      this.news.clear();
    }
    this.newest = Math.max(this.newest, ...jobs.map(job => job.number));
    this.states = now;
  }

  /** Everything since the last time, in one line; "" when nothing happened. */
  take(): string {
    const changed = [...this.news.values()];
    this.news.clear();
    if (changed.length <= MOST_NAMED) {
      return changed
        .map(job =>
          this.trans.__(
            '%1: %2',
            jobTitle(job, this.trans),
            stateLabel(job.state, this.trans)
          )
        )
        .join('; ');
    }
    const counts = new Map<string, number>();
    changed.forEach(job =>
      counts.set(job.state, (counts.get(job.state) ?? 0) + 1)
    );
    return [...counts]
      .map(([state, count]) =>
        this.trans._n(
          '%1 job %2',
          '%1 jobs %2',
          count,
          stateLabel(state, this.trans)
        )
      )
      .join('; ');
  }

  private states: Map<string, string> | null = null;
  private newest = 0;
  private readonly news = new Map<string, JobView>();
}
