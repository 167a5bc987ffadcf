/** Follows what is wanted over one `live` channel, which is begun anew whenever something else is wanted. */
import { IDisposable } from '@lumino/disposable';

import { ApiError } from '../api/errors';
import { LiveUpdate } from '../api/schemas';
import { IStreams } from '../api/streams';
import { Connection, Topic } from '../tokens';
import { IWanted } from './interests';

/** A panel that opens asks for its topics in several steps. */
const TOPICS_MS = 50;
/** Cards come into view and leave it one by one while somebody scrolls. */
const JOBS_MS = 300;
/** After a stream that came to an end, which it does when the scheduler stops. */
const ENDED_MS = 2_000;

export interface IFeedOwner {
  wanted(): IWanted;
  onUpdate(update: LiveUpdate): void;
  onConnection(connection: Connection): void;
}

export class LiveFeed implements IDisposable {
  constructor(
    private readonly streams: IStreams,
    private readonly owner: IFeedOwner
  ) {}

  /** Something else may be wanted. */
  look(): void {
    const wanted = this.owner.wanted();
    const followed = this.asked;
    const isUrgent =
      !followed ||
      wanted.topics.some(topic => !followed.topics.includes(topic));
    this.settleIn(isUrgent ? TOPICS_MS : JOBS_MS);
  }

  retry(): void {
    this.streams.retry();
    if (!this.channel) {
      this.settle();
    }
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    this.disposed = true;
    this.stop();
  }

  private settleIn(delayMs: number): void {
    const dueMs = Date.now() + delayMs;
    if (this.timer === 0 || dueMs < this.dueMs) {
      window.clearTimeout(this.timer);
      this.dueMs = dueMs;
      this.timer = window.setTimeout(() => this.settle(), delayMs);
    }
  }

  private settle(): void {
    window.clearTimeout(this.timer);
    this.timer = 0;
    const wanted = this.owner.wanted();
    if (this.disposed || (this.channel && isSame(wanted, this.asked))) {
      return;
    }
    this.stop();
    this.whole = new Set(
      [...this.whole].filter(topic => wanted.topics.includes(topic))
    );
    if (wanted.topics.length + wanted.jobs.length === 0) {
      this.isLive = this.isAway = false;
      this.owner.onConnection({ state: 'idle' });
      return;
    }
    this.begin(wanted);
  }

  private begin(wanted: IWanted): void {
    this.asked = wanted;
    if (!this.isLive && !this.isAway) {
      this.owner.onConnection({ state: 'connecting' });
    }
    this.channel = this.streams.open<LiveUpdate>({
      start: () => ({ path: 'live', query: this.query(wanted) }),
      onItems: updates => this.receive(updates),
      onAway: error => error && this.away(error),
      onFailed: error => {
        this.stop();
        this.away(error);
        this.isAway = false; // not tried by itself: the next try begins afresh
      },
      onEnded: () => {
        this.stop();
        this.isLive = false;
        this.settleIn(ENDED_MS);
      }
    });
  }

  private receive(updates: LiveUpdate[]): void {
    for (const update of updates) {
      this.seq = update.seq;
      update.full?.forEach(topic => this.whole.add(topic));
      this.owner.onUpdate(update);
    }
    this.isLive = true;
    this.isAway = false;
    this.owner.onConnection({ state: 'live' });
  }

  private away({ body }: ApiError): void {
    this.isLive = false;
    this.isAway = true;
    this.owner.onConnection({
      state: 'away',
      reason: body.reason,
      hint: body.hint ?? null
    });
  }

  /** Go on where it stood with what is there in full; the rest is told in full. */
  private query({ topics, jobs }: IWanted): Record<string, string> {
    const have = topics.filter(topic => this.whole.has(topic));
    return {
      topics: topics.join(','),
      ...(jobs.length > 0 ? { jobs: jobs.join(',') } : {}),
      ...(have.length > 0
        ? { after: String(this.seq), have: have.join(',') }
        : {})
    };
  }

  private stop(): void {
    window.clearTimeout(this.timer);
    this.timer = 0;
    this.channel?.dispose();
    this.channel = null;
    this.asked = null;
  }

  private channel: IDisposable | null = null;
  private asked: IWanted | null = null;
  /** Topics that are here in full as of `seq`. */
  private whole = new Set<Topic>();
  private seq = 0;
  private isLive = false;
  /** It was told so, and is being tried again. */
  private isAway = false;
  private timer = 0;
  private dueMs = 0;
  private disposed = false;
}

function isSame(one: IWanted, other: IWanted | null): boolean {
  return (
    other !== null &&
    one.topics.join() === other.topics.join() &&
    one.jobs.join() === other.jobs.join()
  );
}
