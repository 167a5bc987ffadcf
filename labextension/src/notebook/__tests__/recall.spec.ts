import { ApiError } from '../../api/errors';
import { JobView } from '../../api/schemas';
import { jobView } from '../../model/testing';
import { lastJobs } from '../recall';

const HERE = '/home/ada/work/a.ipynb';
const isHere = (path: string | null) => path === HERE;

/** A client that has these jobs, newest first, and what it was asked. */
function having(...jobs: JobView[]) {
  const asked: string[] = [];
  return {
    asked,
    jobs: async (query: { cell?: string }) => {
      asked.push(query.cell ?? '');
      const cells = new Set((query.cell ?? '').split(','));
      const found = jobs.filter(job => cells.has(job.cell_id ?? ''));
      return { jobs: found, next_before: null, seq: 1 };
    }
  };
}

const job = (number: number, cell_id: string, more: Partial<JobView> = {}) =>
  jobView({ number, cell_id, notebook_path: HERE, ...more });

describe('lastJobs', () => {
  it('finds the newest job of each cell', async () => {
    const client = having(job(3, 'x'), job(2, 'y'), job(1, 'x'));
    const found = await lastJobs(client, ['x', 'y', 'z'], isHere);
    expect(found.map(each => each.number)).toEqual([3, 2]);
  });

  it('leaves the jobs of a copy of the notebook and of others out', async () => {
    const client = having(
      job(5, 'x', { notebook_path: '/home/ada/work/copy.ipynb' }),
      job(4, 'x', { mine: false }),
      job(3, 'x')
    );
    const found = await lastJobs(client, ['x'], isHere);
    expect(found.map(each => each.number)).toEqual([3]);
  });

  it('asks for many cells in parts', async () => {
    const client = having(job(1, 'cell-149'));
    const cells = Array.from({ length: 150 }, (_, index) => `cell-${index}`);
    const found = await lastJobs(client, cells, isHere);
    expect(client.asked.map(cell => cell.split(',').length)).toEqual([100, 50]);
    expect(found.map(each => each.number)).toEqual([1]);
  });

  it('asks again while the scheduler is away', async () => {
    jest.useFakeTimers();
    const there = having(job(1, 'x'));
    let away = 2;
    const client = {
      jobs: async (query: { cell?: string }) => {
        if (away-- > 0) {
          throw new ApiError(502, { code: 'unavailable', reason: 'away' });
        }
        return there.jobs(query);
      }
    };
    const found = lastJobs(client, ['x'], isHere);
    await jest.advanceTimersByTimeAsync(10_000);
    expect((await found).map(each => each.number)).toEqual([1]);
    jest.useRealTimers();
  });

  it('asks no more when the notebook was closed meanwhile', async () => {
    jest.useFakeTimers();
    let asked = 0;
    let isClosed = false;
    const client = {
      jobs: async () => {
        asked++;
        throw new ApiError(502, { code: 'unavailable', reason: 'away' });
      }
    };
    const found = lastJobs(client, ['x'], isHere, () => isClosed);
    await jest.advanceTimersByTimeAsync(200_000);
    expect(asked).toBeGreaterThan(6);
    isClosed = true;
    await jest.advanceTimersByTimeAsync(60_000);
    expect(await found).toEqual([]);
    jest.useRealTimers();
  });

  it('says when it may not look', async () => {
    const client = {
      jobs: async () => {
        throw new ApiError(403, { code: 'forbidden', reason: 'no' });
      }
    };
    await expect(lastJobs(client, ['x'], isHere)).rejects.toThrow('no');
  });
});
