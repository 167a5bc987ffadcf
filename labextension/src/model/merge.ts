/** Puts updates of the cluster into what a page knows of it. Pure: states are never changed, a new one is made. */
import { LiveStatus, LiveUpdate, NodeView, QueueView } from '../api/schemas';
import { Topic } from '../tokens';
import { IWanted } from './interests';
import { Changed, forgetJobs, IJobs, mergeJobs } from './mergeJobs';

/** What a page knows of the cluster. */
export interface IClusterState extends IJobs {
  readonly status: LiveStatus | null;
  readonly queues: readonly QueueView[];
  readonly nodes: readonly NodeView[];
  /** Topics that were once told in full. */
  readonly known: ReadonlySet<Topic>;
}

export const NOTHING: IClusterState = {
  status: null,
  queues: [],
  nodes: [],
  jobs: new Map(),
  gone: new Set(),
  jobsLeftOut: 0,
  known: new Set()
};

/** A state, and what changed: topics, and jobs by id. A step report alone changes a job but none of the topics. */
export interface IMerged {
  readonly state: IClusterState;
  readonly topics: ReadonlySet<Topic>;
  readonly jobs: ReadonlySet<string>;
}

/** `wanted`: what the page follows; a new list of jobs takes the place of what nothing else holds. */
export function merge(
  state: IClusterState,
  update: LiveUpdate,
  wanted: IWanted
): IMerged {
  const changed = new Changed();
  const full = new Set<Topic>(update.full);
  full.forEach(topic => changed.topics.add(topic));
  if (update.status) {
    changed.topics.add('status');
  }
  if (update.queues?.length) {
    changed.topics.add('queues');
  }
  if (update.nodes?.length || update.nodes_gone?.length) {
    changed.topics.add('nodes');
  }
  const next = {
    status: update.status ?? state.status,
    queues: changed.topics.has('queues')
      ? replaced(full.has('queues') ? [] : state.queues, update.queues)
      : state.queues,
    nodes: changed.topics.has('nodes')
      ? replaced(
          full.has('nodes') ? [] : state.nodes,
          update.nodes,
          update.nodes_gone
        )
      : state.nodes,
    ...mergeJobs(ofJobs(state), update, wanted, changed),
    known: full.size > 0 ? new Set([...state.known, ...full]) : state.known
  };
  return { state: next, topics: changed.topics, jobs: changed.jobs };
}

/** Forget the jobs that nobody looks at any more; what else was known stays, as it was. */
export function forget(state: IClusterState, wanted: IWanted): IMerged {
  const changed = new Changed();
  const left = forgetJobs(ofJobs(state), wanted, changed);
  const known = [...state.known].filter(topic => {
    const isOfJobs = topic === 'jobs' || topic === 'mine';
    return !isOfJobs || wanted.topics.includes(topic);
  });
  return {
    state: { ...state, ...left, known: new Set(known) },
    topics: changed.topics,
    jobs: changed.jobs
  };
}

function ofJobs({ jobs, gone, jobsLeftOut }: IJobs): IJobs {
  return { jobs, gone, jobsLeftOut };
}

/** Each thing in place of the one of the same name; new ones at the end. */
function replaced<T extends { name: string }>(
  present: readonly T[],
  newer: readonly T[] = [],
  gone: readonly string[] = []
): T[] {
  const byName = new Map(present.map(thing => [thing.name, thing]));
  newer.forEach(thing => byName.set(thing.name, thing));
  gone.forEach(name => byName.delete(name));
  return [...byName.values()];
}
