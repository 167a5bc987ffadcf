/** Which jobs the list shows, in which order and in which groups. */
import { TranslationBundle } from '@jupyterlab/translation';

import { JobView } from '../api/schemas';
import { isEnded, stateLabel } from './words';

export type Scope = 'mine' | 'all';
export type Group = 'running' | 'waiting' | 'ended';

export const GROUPS: readonly Group[] = ['running', 'waiting', 'ended'];

export interface IJobFilter {
  scope: Scope;
  /** Words that a job must all have: in name, number, queue, owner or state. "#12" is the job of that number. */
  text: string;
}

/** A line of the list. `key` stays the same as long as it is about the same thing. */
export type ListRow =
  | {
      kind: 'group';
      key: string;
      group: Group;
      count: number;
      isOpen: boolean;
    }
  | { kind: 'job'; key: string; group: Group; job: JobView }
  | { kind: 'older'; key: string; count: number };

/** Whatever holds GPUs, or is about to give them back, runs. */
export function groupOf(state: string): Group {
  if (state === 'pending') {
    return 'waiting';
  }
  return isEnded(state) ? 'ended' : 'running';
}

export function groupLabel(group: Group, trans: TranslationBundle): string {
  switch (group) {
    case 'running':
      return trans.__('Running');
    case 'waiting':
      return trans.__('Waiting');
    case 'ended':
      return trans.__('Ended');
  }
}

/**
 * The list: each group that has jobs, its heading first, the newest job on top; so a job moves only when its group
 * changes. `olderCount`: how many older ones are not among `jobs`.
 */
export function listRows(
  jobs: readonly JobView[],
  filter: IJobFilter,
  closed: ReadonlySet<Group>,
  olderCount: number,
  trans: TranslationBundle
): ListRow[] {
  const isWanted = matcher(filter, trans);
  const byGroup: Record<Group, JobView[]> = {
    running: [],
    waiting: [],
    ended: []
  };
  for (const job of jobs) {
    if (isWanted(job)) {
      byGroup[groupOf(job.state)].push(job);
    }
  }
  const rows: ListRow[] = [];
  for (const group of GROUPS) {
    const members = byGroup[group];
    if (!members.length) {
      continue;
    }
    const isOpen = !closed.has(group);
    rows.push({
      kind: 'group',
      key: `group:${group}`,
      group,
      count: members.length,
      isOpen
    });
    if (isOpen) {
      newestFirst(members).forEach(job =>
        rows.push({ kind: 'job', key: job.id, group, job })
      );
    }
  }
  if (olderCount > 0) {
    rows.push({ kind: 'older', key: 'older', count: olderCount });
  }
  return rows;
}

function newestFirst(jobs: JobView[]): JobView[] {
  return jobs.sort((one, other) => other.number - one.number);
}

function matcher(
  filter: IJobFilter,
  trans: TranslationBundle
): (job: JobView) => boolean {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return job =>
    (filter.scope === 'all' || job.mine) &&
    words.every(word =>
      /^#\d+$/.test(word)
        ? job.number === Number(word.slice(1))
        : searched(job, trans).includes(word)
    );
}

/** Views are replaced, never changed: what is searched of one stays right for as long as it is there. */
const searchedOf = new WeakMap<JobView, string>();

function searched(job: JobView, trans: TranslationBundle): string {
  let text = searchedOf.get(job);
  if (text === undefined) {
    text = [
      job.number,
      job.name,
      job.queue,
      job.owner_name,
      job.owner,
      job.state,
      stateLabel(job.state, trans),
      groupLabel(groupOf(job.state), trans)
    ]
      .join('\n')
      .toLowerCase();
    searchedOf.set(job, text);
  }
  return text;
}

/**
 * The row to go to from `from` in steps of `by`, over all rows; stays within the list. A row that is gone counts as the
 * first one.
 */
export function stepTo(
  rows: readonly ListRow[],
  from: string | null,
  by: number
): string | null {
  if (!rows.length) {
    return null;
  }
  const at = rows.findIndex(row => row.key === from);
  const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1);
  return rows[next].key;
}
