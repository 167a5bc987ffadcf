/** Which jobs the cells of a notebook submitted last: the cluster remembers what a page that was closed did not save. */
import { ApiError } from '../api/errors';
import { GpuClient } from '../api/client';
import { JobView } from '../api/schemas';

/** So many cells are asked about at a time. */
const CELLS = 100;
const LIMIT = 1000;
/** While the scheduler is away it is asked again after these pauses, and then after the last one again and again. */
const PAUSES_MS = [1000, 3000, 10000, 30000];

type Client = Pick<GpuClient, 'jobs'>;

/**
 * The newest job of each cell that is the user's own. `isHere` tells the notebook's own path: a copy of a notebook has cells
 * of the same ids. Waits for a scheduler that is away until `isOver`; raises ApiError for what will not pass.
 */
export async function lastJobs(
  client: Client,
  cellIds: readonly string[],
  isHere: (notebookPath: string | null) => boolean,
  isOver: () => boolean = () => false
): Promise<JobView[]> {
  const newest = new Map<string, JobView>();
  for (let start = 0; start < cellIds.length; start += CELLS) {
    const cells = cellIds.slice(start, start + CELLS);
    for (const job of await found(client, cells, isOver)) {
      const isOurs = job.mine && isHere(job.notebook_path);
      if (isOurs && job.cell_id && !newest.has(job.cell_id)) {
        newest.set(job.cell_id, job);
      }
    }
  }
  return [...newest.values()];
}

async function found(
  client: Client,
  cells: readonly string[],
  isOver: () => boolean
): Promise<JobView[]> {
  for (let tries = 0; !isOver(); tries++) {
    try {
      const list = await client.jobs({ cell: cells.join(','), limit: LIMIT });
      return list.jobs;
    } catch (error) {
      if (!(error instanceof ApiError && error.isAway)) {
        throw error;
      }
      const pauseMs = PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)];
      await new Promise(resolve => setTimeout(resolve, pauseMs));
    }
  }
  return [];
}
