import { nullTranslator } from '@jupyterlab/translation';

import { JobView } from '../../api/schemas';
import { Group, IJobFilter, listRows, ListRow, stepTo } from '../jobList';
import { jobView } from '../testing';

const trans = nullTranslator.load('jupyter_gpucluster');
const ALL: IJobFilter = { scope: 'all', text: '' };

const JOBS: JobView[] = [
  jobView({ number: 1, state: 'succeeded', name: 'old' }),
  jobView({ number: 12, state: 'pending', name: 'train', queue: 'vision' }),
  jobView({ number: 3, state: 'running', name: 'eval', mine: false }),
  jobView({ number: 112, state: 'stopping', name: 'x', owner_name: 'Grace' }),
  jobView({ number: 5, state: 'failed', name: 'Train-2', queue: 'vision' }),
  jobView({ number: 6, state: 'starting', name: 'y', mine: false })
];

function shown(
  filter: IJobFilter,
  closed: Group[] = [],
  older = 0
): (string | number)[] {
  return listRows(JOBS, filter, new Set(closed), older, trans).map(row =>
    row.kind === 'group'
      ? `${row.group} ${row.count}`
      : row.kind === 'job'
        ? row.job.number
        : `${row.count} older`
  );
}

describe('the list of jobs', () => {
  it('has what runs, waits and has ended, the newest first', () => {
    expect(shown(ALL)).toEqual([
      'running 3',
      112,
      6,
      3,
      'waiting 1',
      12,
      'ended 2',
      5,
      1
    ]);
  });

  it('has mine alone when asked for', () => {
    expect(shown({ scope: 'mine', text: '' })).toEqual([
      'running 1',
      112,
      'waiting 1',
      12,
      'ended 2',
      5,
      1
    ]);
  });

  it('keeps the heading of a closed group', () => {
    expect(shown(ALL, ['running', 'ended'])).toEqual([
      'running 3',
      'waiting 1',
      12,
      'ended 2'
    ]);
  });

  it('says how many older ones were left out', () => {
    expect(shown(ALL, ['running', 'waiting', 'ended'], 40)).toContain(
      '40 older'
    );
  });

  it.each([
    ['train', [12, 5]],
    ['TRAIN', [12, 5]],
    ['vision', [12, 5]],
    ['grace', [112]],
    ['waiting', [12]],
    ['  vision  failed ', [5]],
    ['12', [112, 12]],
    ['#12', [12]],
    ['nothing like it', []]
  ])('filters by "%s"', (text, numbers) => {
    const found = shown({ scope: 'all', text }).filter(
      row => typeof row === 'number'
    );
    expect(found).toEqual(numbers);
  });
});

describe('stepping through the list', () => {
  const rows: ListRow[] = JOBS.map(job => ({
    kind: 'job',
    key: job.id,
    group: 'running',
    job
  }));

  it.each([
    ['job12', 1, 'job3'],
    ['job12', -1, 'job1'],
    ['job1', -1, 'job1'],
    ['job12', Infinity, 'job6'],
    ['job12', -Infinity, 'job1'],
    ['gone', 1, 'job1']
  ])('from %s by %d is %s', (from, by, to) => {
    expect(stepTo(rows, from, by)).toBe(to);
  });

  it('leads nowhere in an empty list', () => {
    expect(stepTo([], 'job1', 1)).toBeNull();
  });
});
