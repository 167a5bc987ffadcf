/** Puts updates of the cluster into what a page knows of it. Pure: states are never changed, a new one is made. */
import {
  JobView,
  LiveStatus,
  LiveUpdate,
  NodeView,
  QueueView
} from '../api/schemas';
import { Topic } from '../tokens';
import { IWanted } from './interests';

/** What a page knows of the cluster. */
export interface IClusterState {
  readonly status: LiveStatus | null;
  readonly queues: readonly QueueView[];
  readonly nodes: readonly NodeView[];
  readonly jobs: ReadonlyMap<string, JobView>;
  readonly jobsLeftOut: number;
  /** Topics that were once told in full. */
  readonly known: ReadonlySet<Topic>;
  /** Jobs that the cluster does not know, or does not show to this user. */
  readonly gone: ReadonlySet<string>;
}

export const NOTHING: IClusterState = {
  status: null,
  queues: [],
  nodes: [],
  jobs: new Map(),
  jobsLeftOut: 0,
  known: new Set(),
  gone: new Set()
};

/** What an update changed: topics, and jobs by id. A step report alone changes a job but none of the topics. */
export interface IMerged {
  state: IClusterState;
  topics: Set<Topic>;
  jobs: Set<string>;
}

export function merge(
  state: IClusterState,
  update: LiveUpdate,
  wanted: IWanted
): IMerged {
  const full = new Set<Topic>(update.full);
  const topics = new Set<Topic>(full);
  const jobs = new Set<string>();
  if (update.status) {
    topics.add('status');
  }
  if (update.queues?.length) {
    topics.add('queues');
  }
  if (update.nodes?.length || update.nodes_gone?.length) {
    topics.add('nodes');
  }
  const next = {
    status: update.status ?? state.status,
    queues: topics.has('queues')
      ? replaced(full.has('queues') ? [] : state.queues, update.queues ?? [])
      : state.queues,
    nodes: topics.has('nodes')
      ? replaced(
          full.has('nodes') ? [] : state.nodes,
          update.nodes ?? [],
          update.nodes_gone
        )
      : state.nodes,
    ...mergedJobs(state, update, full, wanted, { topics, jobs }),
    jobsLeftOut: isOfList(full, wanted)
      ? (update.jobs_left_out ?? 0)
      : state.jobsLeftOut,
    known: full.size > 0 ? new Set([...state.known, ...full]) : state.known
  };
  return { state: next, topics, jobs };
}

/** Forget the jobs that nobody looks at any more. */
export function forget(state: IClusterState, wanted: IWanted): IMerged {
  const changed = { topics: new Set<Topic>(), jobs: new Set<string>() };
  const jobs = new Map(state.jobs);
  for (const job of state.jobs.values()) {
    if (!isWanted(job, wanted)) {
      jobs.delete(job.id);
      note(job, changed);
    }
  }
  const watched = new Set(wanted.jobs);
  const gone = [...state.gone].filter(id => watched.has(id));
  const known = [...state.known].filter(topic => {
    const isOfJobs = topic === 'jobs' || topic === 'mine';
    return !isOfJobs || wanted.topics.includes(topic);
  });
  return {
    state: {
      ...state,
      jobs: changed.jobs.size > 0 ? jobs : state.jobs,
      gone: new Set(gone),
      known: new Set(known)
    },
    ...changed
  };
}

/** Jobs, newest first. */
export function newestFirst(jobs: Iterable<JobView>): JobView[] {
  return [...jobs].sort((one, other) => other.number - one.number);
}

interface IChanged {
  topics: Set<Topic>;
  jobs: Set<string>;
}

function mergedJobs(
  state: IClusterState,
  update: LiveUpdate,
  full: ReadonlySet<Topic>,
  wanted: IWanted,
  changed: IChanged
): Pick<IClusterState, 'jobs' | 'gone'> {
  const isList = full.has('jobs') || full.has('mine');
  const isQuiet =
    !update.jobs?.length &&
    !update.jobs_gone?.length &&
    !update.progress?.length;
  if (isQuiet && !isList) {
    return { jobs: state.jobs, gone: state.gone };
  }
  const jobs = new Map(state.jobs);
  const gone = new Set(state.gone);
  if (isList) {
    const others = keptBeside(full, wanted);
    for (const job of state.jobs.values()) {
      if (!isWanted(job, others)) {
        jobs.delete(job.id);
        note(job, changed);
      }
    }
  }
  for (const job of update.jobs ?? []) {
    jobs.set(job.id, job);
    gone.delete(job.id);
    note(job, changed);
  }
  for (const id of update.jobs_gone ?? []) {
    const job = jobs.get(id);
    jobs.delete(id);
    gone.add(id);
    changed.jobs.add(id);
    if (job) {
      note(job, changed);
    }
  }
  for (const { job_id: id, progress, first_feedback_us } of update.progress ??
    []) {
    const job = jobs.get(id);
    if (job) {
      jobs.set(id, { ...job, progress, first_feedback_us });
      changed.jobs.add(id);
    }
  }
  return { jobs, gone };
}

/** Whether the update has the longest list of jobs that is wanted. */
function isOfList(full: ReadonlySet<Topic>, wanted: IWanted): boolean {
  return (
    full.has('jobs') || (full.has('mine') && !wanted.topics.includes('jobs'))
  );
}

/** For whom a job is kept that a new list does not have: its watchers, and a list that is not in this update. */
function keptBeside(full: ReadonlySet<Topic>, wanted: IWanted): IWanted {
  return {
    topics: wanted.topics.filter(topic => !full.has(topic)),
    jobs: wanted.jobs
  };
}

function isWanted(job: JobView, wanted: IWanted): boolean {
  return (
    wanted.topics.includes('jobs') ||
    (job.mine && wanted.topics.includes('mine')) ||
    wanted.jobs.includes(job.id)
  );
}

function note(job: JobView, changed: IChanged): void {
  changed.jobs.add(job.id);
  changed.topics.add('jobs');
  if (job.mine) {
    changed.topics.add('mine');
  }
}

/** Each thing in place of the one of the same name; new ones at the end. */
function replaced<T extends { name: string }>(
  present: readonly T[],
  newer: readonly T[],
  gone: readonly string[] = []
): T[] {
  const byName = new Map(present.map(thing => [thing.name, thing]));
  newer.forEach(thing => byName.set(thing.name, thing));
  gone.forEach(name => byName.delete(name));
  return [...byName.values()];
}
