/** Which jobs the cells of a notebook submitted last: the cluster remembers what a page that was closed did not save. */
import { ApiError } from '../api/errors';
import { GpuClient } from '../api/client';
import { JobView } from '../api/schemas';

/** So many cells are asked about at a time. */
const CELLS = 100;
const LIMIT = 1000;
/** While the scheduler is away it is asked again after these pauses. */
const PAUSES_MS = [1000, 3000, 10000, 30000, 60000];

/**
 * The newest job of each cell that is the user's own; none when the cluster stays away. `isHere` tells the notebook's own path:
 * a copy of a notebook has cells of the same ids.
 */
export async function lastJobs(
  client: Pick<GpuClient, 'jobs'>,
  cellIds: readonly string[],
  isHere: (notebookPath: string | null) => boolean
): Promise<JobView[]> {
  const newest = new Map<string, JobView>();
  for (let start = 0; start < cellIds.length; start += CELLS) {
    const cells = cellIds.slice(start, start + CELLS);
    for (const job of await found(client, cells)) {
      const isOurs = job.mine && isHere(job.notebook_path);
      if (isOurs && job.cell_id && !newest.has(job.cell_id)) {
        newest.set(job.cell_id, job);
      }
    }
  }
  return [...newest.values()];
}

async function found(
  client: Pick<GpuClient, 'jobs'>,
  cells: readonly string[]
): Promise<JobView[]> {
  for (const pauseMs of [...PAUSES_MS, null]) {
    try {
      const list = await client.jobs({ cell: cells.join(','), limit: LIMIT });
      return list.jobs;
    } catch (error) {
      if (!(error instanceof ApiError && error.isAway) || pauseMs === null) {
        return [];
      }
      await new Promise(resolve => setTimeout(resolve, pauseMs));
    }
  }
  return [];
}
