/** A cluster for tests of views: plain arrays, and builders of views with sensible defaults. */
import { Signal } from '@lumino/signaling';

import {
  AttemptView,
  GpuView,
  HistoryView,
  JobView,
  LiveStatus,
  NodeView,
  Progress,
  QueueView,
  TaskView,
  WhyView
} from '../api/schemas';
import {
  Connection,
  IClusterChange,
  IGpuCluster,
  IInterest,
  ITrack,
  IWatch,
  Topic
} from '../tokens';
import { EMPTY_TRACK, Track } from './track';

/** The time of every default, in microseconds. */
export const NOW_US = 1_760_000_000_000_000;

/** All states of a job. */
export const STATES: readonly string[] = [
  'pending',
  'starting',
  'running',
  'suspended',
  'stopping',
  'succeeded',
  'failed',
  'cancelled'
];

export function jobView(given: Partial<JobView> = {}): JobView {
  const number = given.number ?? 1;
  return {
    id: `job${number}`,
    number,
    name: 'train',
    owner: 'uid:1000',
    owner_name: 'ada',
    mine: true,
    queue: 'root.default',
    state: 'running',
    reason: null,
    waits: null,
    position: null,
    tier: 1,
    priority: 0,
    gpus: 1,
    gpu_types: [],
    tasks: 1,
    cpus: 4,
    memory_bytes: 8 * 2 ** 30,
    time_limit_s: null,
    submitted_us: NOW_US - 60e6,
    started_us: NOW_US - 59e6,
    ended_us: null,
    first_feedback_us: null,
    attempts_made: 1,
    attempt: null,
    progress: null,
    share: 'owner',
    notebook_path: null,
    cell_id: null,
    can_control: true,
    can_read: true,
    seq: number,
    execution_count: null,
    fills_cell: false,
    ...given
  };
}

export function attemptView(given: Partial<AttemptView> = {}): AttemptView {
  return {
    id: 'attempt1',
    number: 1,
    state: 'running',
    created_us: NOW_US - 59.5e6,
    started_us: NOW_US - 59e6,
    ended_us: null,
    outcome: null,
    reason: null,
    tasks: [taskView()],
    tasks_left_out: 0,
    ...given
  };
}

export function taskView(given: Partial<TaskView> = {}): TaskView {
  return {
    role: 'main',
    rank: 0,
    node: 'node1',
    gpus: ['GPU-0'],
    gpu_indices: [0],
    state: 'running',
    exit_code: null,
    reason: null,
    cpu_percent: null,
    memory_bytes: null,
    note: null,
    ended_us: null,
    stop_cause: null,
    ...given
  };
}

export function progress(given: Partial<Progress> = {}): Progress {
  return {
    step: 10,
    total: 100,
    metrics: {},
    time_us: NOW_US,
    rank: 0,
    source: 'report',
    description: null,
    ...given
  };
}

/** Amounts are in thousandths, by resource: {gpu: 4000} is four GPUs. */
export function queueView(given: Partial<QueueView> = {}): QueueView {
  return {
    name: 'root.default',
    parent: 'root',
    is_leaf: true,
    guaranteed: { gpu: 4000 },
    max: { gpu: 8000 },
    used: { gpu: 0 },
    borrowed: {},
    mine: {},
    waiting: 0,
    running: 0,
    weight: 1,
    ordering: 'fifo',
    may_submit: true,
    description: '',
    free_for_good: { gpu: 4000 },
    free_until_reclaimed: { gpu: 4000 },
    lent_out: {},
    ...given
  };
}

export function gpuView(given: Partial<GpuView> = {}): GpuView {
  const index = given.index ?? 0;
  return {
    uuid: `GPU-${index}`,
    index,
    type: 'A100',
    memory_bytes: 80 * 2 ** 30,
    socket: 0,
    switch: 0,
    nvlink_island: null,
    health: 'ok',
    note: null,
    simulated: false,
    job_number: null,
    job_name: null,
    job_id: null,
    occupied: false,
    mine: false,
    utilization_percent: null,
    memory_used_bytes: null,
    ...given
  };
}

export function nodeView(given: Partial<NodeView> = {}): NodeView {
  return {
    name: 'node1',
    rack: 'rack1',
    health: 'ready',
    simulated: false,
    capacity: { gpu: 1000 },
    used: { gpu: 0 },
    gpus: [gpuView()],
    notes: [],
    set_by: null,
    set_reason: null,
    set_us: null,
    ...given
  };
}

export function liveStatus(given: Partial<LiveStatus> = {}): LiveStatus {
  return {
    cluster: 'lab',
    simulated: false,
    principal: 'uid:1000',
    principal_name: 'ada',
    is_admin: false,
    levels: ['cluster', 'rack', 'node', 'socket', 'switch', 'gpu'],
    nodes: 1,
    gpus: 1,
    gpus_healthy: 1,
    gpus_used: 0,
    running: 0,
    waiting: 0,
    my_running: 0,
    my_waiting: 0,
    notes: [],
    ...given
  };
}

/** What a test may set of a fake cluster, when making it or later; then `emit()`. */
export interface IFakeState {
  connection: Connection;
  heardMs: number | null;
  status: LiveStatus | null;
  queues: QueueView[];
  nodes: NodeView[];
  jobs: JobView[];
  jobsLeftOut: number;
  /** Ids of jobs that the cluster does not know. */
  gone: string[];
  clockOffsetMs: number;
  /** Topics that are whole; all of them by default. */
  known: Topic[];
  /** Step reports by job id. */
  reports: Record<string, Progress[]>;
}

/** IGpuCluster over what it is given. It records what was asked of it in `asked` and what is watched in `interests`. */
export class FakeCluster implements IGpuCluster, IFakeState {
  constructor(state: Partial<IFakeState> = {}) {
    Object.assign(this, state);
  }

  connection: Connection = { state: 'live' };
  heardMs: number | null = NOW_US / 1000;
  status: LiveStatus | null = null;
  queues: QueueView[] = [];
  nodes: NodeView[] = [];
  jobs: JobView[] = [];
  jobsLeftOut = 0;
  gone: string[] = [];
  clockOffsetMs = 0;
  known: Topic[] = ['status', 'queues', 'nodes', 'jobs', 'mine'];
  reports: Record<string, Progress[]> = {};

  /** Calls in their order, such as ['cancel', 'job1', 'too slow']. */
  readonly asked: unknown[][] = [];
  /** What is being watched at present. */
  readonly interests = new Set<IInterest>();
  readonly changed = new Signal<this, IClusterChange>(this);
  /** What the next requests answer; a test sets these, also to raise. */
  answers = {
    cancel: (id: string): JobView | Promise<JobView> =>
      jobView({ ...this.job(id), state: 'cancelled' }),
    share: (id: string, share: string): JobView | Promise<JobView> =>
      jobView({ ...this.job(id), share }),
    why: (id: string): WhyView | Promise<WhyView> => ({
      job_id: id,
      verdict: 'starts_when',
      code: 'no_gpus_free',
      sentence: 'starts when 1 GPU is free',
      facts: {},
      position: 1
    }),
    history: (id: string): HistoryView[] | Promise<HistoryView[]> => []
  };

  /** Tell the views; without an argument, that everything changed. */
  emit(change: Partial<IClusterChange> = {}): void {
    this.changed.emit({
      connection: true,
      topics: new Set(this.known),
      jobs: new Set(this.jobs.map(job => job.id)),
      ...change
    });
  }

  knows(topic: Topic): boolean {
    return this.known.includes(topic);
  }

  job(id: string): JobView | undefined {
    return this.jobs.find(job => job.id === id);
  }

  isGone(id: string): boolean {
    return this.gone.includes(id);
  }

  track(id: string): ITrack {
    const reports = this.reports[id];
    if (!reports) {
      return EMPTY_TRACK;
    }
    const track = new Track();
    track.merge(reports);
    return track;
  }

  watch(interest: IInterest): IWatch {
    const interests = this.interests;
    let current = interest;
    interests.add(current);
    return {
      isDisposed: false,
      update(next: IInterest): void {
        interests.delete(current);
        current = next;
        interests.add(current);
      },
      dispose(): void {
        interests.delete(current);
      }
    };
  }

  async loadSteps(id: string): Promise<void> {
    this.asked.push(['loadSteps', id]);
  }

  async cancel(id: string, reason?: string): Promise<JobView> {
    this.asked.push(reason ? ['cancel', id, reason] : ['cancel', id]);
    return this.answers.cancel(id);
  }

  async share(
    id: string,
    share: 'owner' | 'queue' | 'everyone'
  ): Promise<JobView> {
    this.asked.push(['share', id, share]);
    return this.answers.share(id, share);
  }

  async why(id: string): Promise<WhyView> {
    this.asked.push(['why', id]);
    return this.answers.why(id);
  }

  async history(id: string): Promise<HistoryView[]> {
    this.asked.push(['history', id]);
    return this.answers.history(id);
  }

  retry(): void {
    this.asked.push(['retry']);
  }
}

export function fakeCluster(state: Partial<IFakeState> = {}): FakeCluster {
  return new FakeCluster(state);
}
