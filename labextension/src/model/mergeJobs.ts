/** Puts what an update says of jobs into those that a page knows. Pure, as merge.ts. */
import { JobView, LiveUpdate } from '../api/schemas';
import { Topic } from '../tokens';
import { IWanted } from './interests';

/** A page that stays open for weeks forgets the oldest jobs that have ended: beyond the first number, down to the second. */
export const MOST_JOBS = 2000;
export const KEPT_JOBS = 1000;

export interface IJobs {
  readonly jobs: ReadonlyMap<string, JobView>;
  /** Ids of jobs that the cluster does not know, or does not show to this user. */
  readonly gone: ReadonlySet<string>;
  /** Older jobs of the list that are not among them. */
  readonly jobsLeftOut: number;
}

/** What changes while something is merged: topics, and jobs by id. */
export class Changed {
  readonly topics = new Set<Topic>();
  readonly jobs = new Set<string>();

  /** The view of a job, or its place in a list. */
  job(job: JobView): void {
    this.jobs.add(job.id);
    this.topics.add('jobs');
    if (job.mine) {
      this.topics.add('mine');
    }
  }
}

export function mergeJobs(
  state: IJobs,
  update: LiveUpdate,
  wanted: IWanted,
  changed: Changed
): IJobs {
  const full = new Set<Topic>(update.full);
  const isList = full.has('jobs') || full.has('mine');
  const isQuiet =
    !update.jobs?.length &&
    !update.jobs_gone?.length &&
    !update.progress?.length;
  if (isQuiet && !isList) {
    return state;
  }
  const jobs = new Map(state.jobs);
  const gone = new Set(state.gone);
  if (isList) {
    drop(jobs, job => !isWanted(job, keptBeside(full, wanted)), changed);
  }
  for (const job of update.jobs ?? []) {
    jobs.set(job.id, job);
    gone.delete(job.id);
    changed.job(job);
  }
  for (const id of update.jobs_gone ?? []) {
    drop(jobs, job => job.id === id, changed);
    changed.jobs.add(id);
    gone.add(id);
  }
  report(jobs, update, changed);
  const leftOut = isOfList(full, wanted)
    ? (update.jobs_left_out ?? 0)
    : state.jobsLeftOut;
  const jobsLeftOut = leftOut + shorten(jobs, wanted, changed);
  return { jobs, gone, jobsLeftOut };
}

/** Step reports of jobs whose view did not change otherwise: a list of jobs stays the same. */
function report(
  jobs: Map<string, JobView>,
  update: LiveUpdate,
  changed: Changed
): void {
  for (const told of update.progress ?? []) {
    const job = jobs.get(told.job_id);
    if (job) {
      const { progress, first_feedback_us } = told;
      jobs.set(job.id, { ...job, progress, first_feedback_us });
      changed.jobs.add(job.id);
    }
  }
}

/** Forget the jobs that nobody looks at any more. */
export function forgetJobs(
  state: IJobs,
  wanted: IWanted,
  changed: Changed
): IJobs {
  const jobs = new Map(state.jobs);
  drop(jobs, job => !isWanted(job, wanted), changed);
  const gone = [...state.gone].filter(id => wanted.jobs.includes(id));
  return {
    jobs: changed.jobs.size > 0 ? jobs : state.jobs,
    gone: new Set(gone),
    jobsLeftOut: state.jobsLeftOut
  };
}

/** Jobs, newest first. */
export function newestFirst(jobs: Iterable<JobView>): JobView[] {
  return [...jobs].sort((one, other) => other.number - one.number);
}

function drop(
  jobs: Map<string, JobView>,
  isDropped: (job: JobView) => boolean,
  changed: Changed
): void {
  for (const job of jobs.values()) {
    if (isDropped(job)) {
      jobs.delete(job.id);
      changed.job(job);
    }
  }
}

/** Drops what is too much of a list that only grows; how many jobs that were. */
function shorten(
  jobs: Map<string, JobView>,
  wanted: IWanted,
  changed: Changed
): number {
  if (jobs.size <= MOST_JOBS) {
    return 0;
  }
  const old = newestFirst(jobs.values())
    .slice(KEPT_JOBS)
    .filter(job => job.ended_us !== null && !wanted.jobs.includes(job.id));
  const ids = new Set(old.map(job => job.id));
  drop(jobs, job => ids.has(job.id), changed);
  return old.length;
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
