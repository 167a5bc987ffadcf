/** The cluster as this page follows it: what is wanted is asked for, what comes is merged, and the views are told once a frame. */
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { GpuClient } from '../api/client';
import {
  HistoryView,
  JobView,
  LiveStatus,
  LiveUpdate,
  NodeView,
  QueueView,
  WhyView
} from '../api/schemas';
import { IStreams } from '../api/streams';
import {
  Connection,
  IClusterChange,
  IGpuCluster,
  IInterest,
  ITrack,
  IWatch,
  Topic
} from '../tokens';
import { ServerClock } from './clock';
import { LiveFeed } from './feed';
import { OncePerFrame } from './frames';
import { Interests, isJobId } from './interests';
import { forget, IClusterState, IMerged, merge, NOTHING } from './merge';
import { newestFirst } from './mergeJobs';
import { Tracks } from './tracks';

/** What nobody looks at any more is kept for so long: most often somebody is back at once. */
const FORGET_MS = 10_000;
/** Something is heard every 10 s; after a longer silence step reports may be missing. */
const GAP_MS = 15_000;

export class ClusterModel implements IGpuCluster, IDisposable {
  constructor(
    private readonly streams: IStreams,
    private readonly client: GpuClient
  ) {}

  get connection(): Connection {
    return this._connection;
  }

  get heardMs(): number | null {
    return this._heardMs;
  }

  get status(): LiveStatus | null {
    return this.state.status;
  }

  get queues(): readonly QueueView[] {
    return this.state.queues;
  }

  get nodes(): readonly NodeView[] {
    return this.state.nodes;
  }

  get jobs(): readonly JobView[] {
    this.sorted ??= newestFirst(this.state.jobs.values());
    return this.sorted;
  }

  get jobsLeftOut(): number {
    return this.state.jobsLeftOut;
  }

  get changed(): ISignal<IGpuCluster, IClusterChange> {
    return this._changed;
  }

  get clockOffsetMs(): number {
    return this.clock.offsetMs;
  }

  /** A whole list of all jobs has one's own too. */
  knows(topic: Topic): boolean {
    const { known, jobsLeftOut } = this.state;
    return (
      known.has(topic) ||
      (topic === 'mine' && known.has('jobs') && jobsLeftOut === 0)
    );
  }

  job(id: string): JobView | undefined {
    return this.state.jobs.get(id);
  }

  isGone(id: string): boolean {
    return this.state.gone.has(id) || !isJobId(id);
  }

  track(id: string): ITrack {
    return this.tracks.get(id);
  }

  watch(interest: IInterest): IWatch {
    return this.interests.watch(interest);
  }

  loadSteps(id: string): Promise<void> {
    return this.tracks.loadEarlier(id);
  }

  async cancel(id: string, reason?: string): Promise<JobView> {
    return this.takeIn(await this.client.cancel(id, reason));
  }

  async share(
    id: string,
    share: 'owner' | 'queue' | 'everyone'
  ): Promise<JobView> {
    return this.takeIn(await this.client.share(id, share));
  }

  why(id: string): Promise<WhyView> {
    return this.client.why(id);
  }

  history(id: string): Promise<HistoryView[]> {
    return this.client.history(id);
  }

  retry(): void {
    this.feed.retry();
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    this.disposed = true;
    window.clearTimeout(this.forgetting);
    this.feed.dispose();
    this.frames.dispose();
    Signal.clearData(this);
  }

  private onInterest(): void {
    this.feed.look();
    window.clearTimeout(this.forgetting);
    this.forgetting = window.setTimeout(() => {
      this.apply(forget(this.state, this.interests.wanted()));
      this.tracks.keep(new Set(this.state.jobs.keys()));
    }, FORGET_MS);
  }

  private onUpdate(update: LiveUpdate): void {
    const nowMs = Date.now();
    const isAfterGap = this._heardMs !== null && nowMs - this._heardMs > GAP_MS;
    this._heardMs = nowMs;
    this.clock.heard(update.time_us, nowMs);
    this.apply(merge(this.state, update, this.interests.wanted()));
    for (const { id, progress } of update.jobs ?? []) {
      if (progress) {
        this.tracks.add(id, progress);
      }
    }
    for (const { job_id, progress } of update.progress ?? []) {
      this.tracks.add(job_id, progress);
    }
    if (isAfterGap) {
      this.tracks.fillGaps(new Set(this.state.jobs.keys()));
    }
  }

  private onConnection(connection: Connection): void {
    if (!isSame(connection, this._connection)) {
      this._connection = connection;
      this.change.connection = true;
      this.frames.ask();
    }
  }

  /** The answer to a request of one's own, unless something newer is known already. */
  private takeIn(job: JobView): JobView {
    const known = this.job(job.id);
    if (known && job.seq >= known.seq) {
      this.apply({
        state: {
          ...this.state,
          jobs: new Map(this.state.jobs).set(job.id, job)
        },
        topics: new Set<Topic>(job.mine ? ['jobs', 'mine'] : ['jobs']),
        jobs: new Set([job.id])
      });
    }
    return job;
  }

  private apply({ state, topics, jobs }: IMerged): void {
    if (state.jobs !== this.state.jobs) {
      this.sorted = null;
    }
    this.state = state;
    topics.forEach(topic => this.change.topics.add(topic));
    jobs.forEach(id => this.change.jobs.add(id));
    if (topics.size + jobs.size > 0) {
      this.frames.ask();
    }
  }

  private tell(): void {
    const change = this.change;
    this.change = noChange();
    this._changed.emit(change);
  }

  private readonly interests = new Interests(() => this.onInterest());
  private readonly feed = new LiveFeed(this.streams, {
    wanted: () => this.interests.wanted(),
    onUpdate: update => this.onUpdate(update),
    onConnection: connection => this.onConnection(connection)
  });
  private readonly tracks = new Tracks(
    async (id, limit) => (await this.client.steps(id, limit)).steps,
    id => {
      this.change.jobs.add(id);
      this.frames.ask();
    }
  );
  private readonly frames = new OncePerFrame(() => this.tell());
  private readonly clock = new ServerClock();
  private readonly _changed = new Signal<IGpuCluster, IClusterChange>(this);
  private state: IClusterState = NOTHING;
  private sorted: JobView[] | null = null;
  private change = noChange();
  private _connection: Connection = { state: 'idle' };
  private _heardMs: number | null = null;
  private forgetting = 0;
  private disposed = false;
}

/** As IClusterChange, while it is being collected. */
interface ICollected {
  connection: boolean;
  topics: Set<Topic>;
  jobs: Set<string>;
}

function noChange(): ICollected {
  return { connection: false, topics: new Set(), jobs: new Set() };
}

function isSame(one: Connection, other: Connection): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
