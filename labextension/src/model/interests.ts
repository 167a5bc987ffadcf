/** What all that is on the page look at, put together. */
import { IDisposable } from '@lumino/disposable';

import { IInterest, IWatch, Topic } from '../tokens';

/** The API follows at most so many single jobs; the newest interests win. */
export const MAX_JOBS = 200;

const TOPICS: readonly Topic[] = ['status', 'queues', 'nodes', 'jobs', 'mine'];

/** Whether it can be the id of a job. One that a notebook has got wrong must not spoil the request for all others. */
export function isJobId(id: string): boolean {
  return /^[0-9a-z]{1,64}$/.test(id);
}

/** The union of interests. */
export interface IWanted {
  readonly topics: readonly Topic[];
  readonly jobs: readonly string[];
}

export class Interests {
  constructor(private readonly onChange: () => void) {}

  watch(interest: IInterest): IWatch {
    const watch = new Watch(
      () => this.renew(watch),
      () => this.remove(watch)
    );
    watch.interest = interest;
    this.renew(watch);
    return watch;
  }

  /** Topics in a fixed order; jobs in the order of their ids, so that the same union always looks the same. */
  wanted(): IWanted {
    const topics = new Set<Topic>();
    const jobs = new Set<string>();
    for (const watch of [...this.watches].reverse()) {
      watch.interest.topics?.forEach(topic => topics.add(topic));
      for (const id of watch.interest.jobs ?? []) {
        if (jobs.size < MAX_JOBS && isJobId(id)) {
          jobs.add(id);
        }
      }
    }
    return {
      topics: TOPICS.filter(topic => topics.has(topic)),
      jobs: [...jobs].sort()
    };
  }

  private renew(watch: Watch): void {
    this.watches.delete(watch);
    this.watches.add(watch);
    this.onChange();
  }

  private remove(watch: Watch): void {
    this.watches.delete(watch);
    this.onChange();
  }

  private readonly watches = new Set<Watch>();
}

class Watch implements IWatch, IDisposable {
  constructor(
    private readonly onUpdate: () => void,
    private readonly onDispose: () => void
  ) {}

  interest: IInterest = {};

  update(interest: IInterest): void {
    if (!this.disposed) {
      this.interest = interest;
      this.onUpdate();
    }
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    if (!this.disposed) {
      this.disposed = true;
      this.onDispose();
    }
  }

  private disposed = false;
}
