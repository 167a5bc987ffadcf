import { nullTranslator } from '@jupyterlab/translation';

import { QueueView } from '../../api/schemas';
import {
  barredText,
  explanations,
  freeText,
  gpuCount,
  IQueueRow,
  queueBar,
  queueLabel,
  queueRows,
  usedText,
  waitingText
} from '../queues';
import { queueView } from '../testing';

const trans = nullTranslator.load('jupyter_gpucluster');
const OPEN: ReadonlySet<string> = new Set();

function root(given: Partial<QueueView> = {}): QueueView {
  return queueView({
    name: 'root',
    parent: null,
    is_leaf: false,
    guaranteed: { gpu: 40_000, 'gpu/A100': 32_000, 'gpu/T4': 8000 },
    max: {},
    ...given
  });
}

const CLUSTER: QueueView[] = [
  root(),
  queueView({
    name: 'vision',
    parent: 'root',
    is_leaf: false,
    guaranteed: { gpu: 16_000 },
    max: { gpu: 24_000 },
    may_submit: false
  }),
  queueView({
    name: 'speech',
    parent: 'root',
    guaranteed: { gpu: 12_000 },
    max: {},
    waiting: 1,
    may_submit: false
  }),
  queueView({ name: 'research', parent: 'vision', waiting: 2, running: 1 }),
  queueView({
    name: 'students',
    parent: 'vision',
    max: { gpu: 30_000 },
    waiting: 3,
    running: 4,
    used: { gpu: 2000, 'gpu/T4': 2000 }
  })
];

function row(name: string, closed = OPEN): IQueueRow {
  const found = queueRows(CLUSTER, closed, 40).find(
    one => one.queue.name === name
  );
  if (!found) {
    throw new Error(`no row ${name}`);
  }
  return found;
}

function alone(given: Partial<QueueView>): IQueueRow {
  return queueRows(
    [root(), queueView({ parent: 'root', ...given })],
    OPEN,
    40
  )[0];
}

describe('the queue tree', () => {
  it('has parents before their children, without the root', () => {
    expect(
      queueRows(CLUSTER, OPEN, 40).map(one => [one.queue.name, one.level])
    ).toEqual([
      ['vision', 1],
      ['research', 2],
      ['students', 2],
      ['speech', 1]
    ]);
  });

  it('tells the place among siblings', () => {
    const students = row('students');
    expect([students.place, students.siblings]).toEqual([2, 2]);
  });

  it('leaves out what is below a closed queue', () => {
    const rows = queueRows(CLUSTER, new Set(['vision']), 40);
    expect(rows.map(one => one.queue.name)).toEqual(['vision', 'speech']);
    expect(rows[0].hasChildren).toBe(true);
  });

  it('shows a root that is the only queue', () => {
    const rows = queueRows([root({ is_leaf: true })], OPEN, 40);
    expect(rows.map(one => one.queue.name)).toEqual(['root']);
  });

  it('shows a queue whose parent is not to be seen', () => {
    const rows = queueRows([queueView({ parent: 'hidden' })], OPEN, 40);
    expect(rows).toHaveLength(1);
  });

  it('tells how many jobs wait', () => {
    expect(waitingText(row('research'), trans)).toBe('2 waiting');
    expect(waitingText(row('vision'), trans)).toBe('');
  });

  it('may be submitted to when a queue below may', () => {
    expect(barredText(row('vision'), trans)).toBe('');
    expect(barredText(row('speech'), trans)).toBe(
      'You may not submit to this queue.'
    );
  });

  it('has the lowest maximum of the path, or the cluster', () => {
    expect(row('students').figures).toMatchObject({
      most: 24_000,
      hasMaximum: true
    });
    expect(row('speech').figures).toMatchObject({
      most: 40_000,
      hasMaximum: false
    });
  });

  it('tells types apart only where there are several', () => {
    expect(row('students').types.map(([type]) => type)).toEqual(['T4']);
    const oneType = queueRows(
      [
        root({ guaranteed: { gpu: 8000, 'gpu/T4': 8000 } }),
        queueView({ parent: 'root', used: { gpu: 1000, 'gpu/T4': 1000 } })
      ],
      OPEN,
      8
    );
    expect(oneType[0].types).toEqual([]);
  });
});

describe('the bar of a queue', () => {
  it('ends at the maximum, with a mark at the guarantee', () => {
    const { figures } = alone({
      guaranteed: { gpu: 10_000 },
      max: { gpu: 20_000 },
      used: { gpu: 16_000 },
      borrowed: { gpu: 6000 },
      mine: { gpu: 4000 }
    });
    expect(queueBar(figures)).toEqual({
      within: 0.5,
      used: 0.8,
      guaranteed: 0.5,
      mine: 0.2
    });
  });

  it('ends at the cluster without a maximum', () => {
    const { figures } = alone({ max: {}, used: { gpu: 10_000 }, borrowed: {} });
    expect(queueBar(figures)).toMatchObject({ within: 0.25, used: 0.25 });
  });

  it('has no mark without a guarantee', () => {
    const { figures } = alone({
      guaranteed: {},
      used: { gpu: 4000 },
      borrowed: { gpu: 4000 },
      max: { gpu: 8000 }
    });
    expect(queueBar(figures)).toEqual({
      within: 0,
      used: 0.5,
      guaranteed: null,
      mine: 0
    });
  });

  it('holds what is used above the maximum', () => {
    const { figures } = alone({
      max: { gpu: 2000 },
      guaranteed: { gpu: 2000 },
      used: { gpu: 4000 },
      borrowed: { gpu: 2000 }
    });
    expect(queueBar(figures)).toEqual({
      within: 0.5,
      used: 1,
      guaranteed: 0.5,
      mine: 0
    });
  });

  it('is empty in a cluster without GPUs', () => {
    const rows = queueRows(
      [queueView({ parent: null, guaranteed: {}, max: {}, used: {} })],
      OPEN,
      0
    );
    expect(queueBar(rows[0].figures)).toEqual({
      within: 0,
      used: 0,
      guaranteed: null,
      mine: 0
    });
  });
});

describe('the figures of a queue in words', () => {
  it.each([
    [3000, '3'],
    [500, '0.5'],
    [333, '0.33'],
    [16_250, '16.25'],
    [1, '<0.01'],
    [0, '0']
  ])('%i thousandths are %s GPUs', (milli, text) => {
    expect(gpuCount(milli)).toBe(text);
  });

  it.each([
    [16_000, 10_000, 6000, '16 used of 10 guaranteed (6 borrowed)'],
    [4000, 10_000, 0, '4 used of 10 guaranteed'],
    [5000, 0, 5000, '5 used, all borrowed'],
    [5000, 0, 0, '5 used, no guarantee of its own'],
    [0, 0, 0, '0 used, nothing guaranteed']
  ])('%i used of %i, %i borrowed', (used, guaranteed, borrowed, text) => {
    const { figures } = alone({
      used: { gpu: used },
      guaranteed: { gpu: guaranteed },
      borrowed: { gpu: borrowed }
    });
    expect(usedText(figures, trans)).toBe(text);
  });

  it.each([
    [3000, 5000, '3 free for good · 5 more until reclaimed'],
    [3000, 0, '3 free for good'],
    [0, 5000, '5 free until reclaimed'],
    [0, 0, 'nothing free now']
  ])('%i free for good, %i until reclaimed', (good, lent, text) => {
    const { figures } = alone({
      free_for_good: { gpu: good },
      free_until_reclaimed: { gpu: lent }
    });
    expect(freeText(figures, trans)).toBe(text);
  });

  it('explains what is lent out and where the maximum is', () => {
    const told = explanations(
      alone({ lent_out: { gpu: 2500 }, max: { gpu: 8000 } }),
      trans
    );
    expect(told).toContain(
      '2.5 of its guaranteed GPUs are lent to other queues at present.'
    );
    expect(told).toContain('At most 8 GPUs.');
    expect(told).toContain('Order: first come, first served.');
  });

  it('is one line for a screen reader', () => {
    expect(
      queueLabel(
        alone({ name: 'vision', mine: { gpu: 1000 }, waiting: 2 }),
        trans
      )
    ).toBe(
      'vision, 2 waiting, 0 used of 4 guaranteed, 1 mine, 4 free for good · 4 more until reclaimed'
    );
  });
});
