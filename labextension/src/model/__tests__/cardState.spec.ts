import { nullTranslator } from '@jupyterlab/translation';

import { HistoryView } from '../../api/schemas';
import { isDisturbed, newest, notice, parseCard } from '../cardState';
import { jobView } from '../testing';
import * as words from '../words';

const trans = nullTranslator.load('jupyter_gpucluster');

/** As jupyter_gpucluster/card.py writes it. */
const JSON_OF_CARD = {
  version: 1,
  job_id: '01jabc',
  number: 12,
  name: 'train',
  state: 'running',
  queue: 'vision',
  gpus: 2,
  tasks: 1,
  owner: 'ada',
  simulated: true,
  submitted_us: 1e6,
  started_us: 2e6,
  ended_us: null,
  first_feedback_us: 4.2e6,
  attempts_made: 1,
  reason: null,
  waits: null,
  position: null,
  place: { nodes: 1, names: ['node-0'], gpu_indices: [2, 3] },
  progress: {
    step: 3,
    total: 4,
    metrics: { loss: 0.5, norm: 'nan' },
    time_us: 5e6,
    rank: 0,
    source: 'report',
    description: null
  },
  seq: 9,
  summary: 'in: X',
  limits: '',
  hints: ['a hint'],
  notes: [],
  warnings: [],
  drawing: { fills_cell: true, complete: false }
};

function parsed(changes: Record<string, unknown> = {}) {
  const card = parseCard({ ...JSON_OF_CARD, ...changes });
  expect(card).not.toBeNull();
  return card!;
}

describe('the JSON of a card', () => {
  it('is cut where it is longer than a kernel makes it', () => {
    const { job, hints } = parsed({
      name: 'n'.repeat(1e6),
      hints: new Array(1e5).fill('h'.repeat(1e5))
    });
    expect(job.name).toHaveLength(10_001);
    expect(job.name).toMatch(/n…$/);
    expect(hints).toHaveLength(1000);
    expect(hints[0]).toHaveLength(10_001);
  });

  it('shows the job as it was to a page that cannot ask the cluster', () => {
    const { job, ...others } = parsed();
    expect(words.standing(job, 0, trans)).toBe(
      'running on node-0 (GPU 2, 3) · step 3/4 · loss 0.5 · norm nan'
    );
    expect(words.firstFeedback(job, trans)).toBe('first step after 3.2 s');
    expect(others).toEqual({
      simulated: true,
      fillsCell: true,
      summary: 'in: X',
      limits: '',
      hints: ['a hint'],
      notes: [],
      warnings: []
    });
  });

  it('grants nothing', () => {
    const { job } = parsed({ can_control: true, can_read: true, mine: true });
    expect([job.can_control, job.can_read, job.mine]).toEqual([
      false,
      false,
      false
    ]);
  });

  it('counts the nodes that it does not name', () => {
    const place = { nodes: 10, names: ['a', 'b', 'c', 'd'], gpu_indices: [] };
    expect(words.where(parsed({ place }).job, trans)).toBe(
      'on 10 nodes (a, b, c, …)'
    );
  });

  it('may lack what older versions did not write', () => {
    const card = parseCard({
      version: 1,
      job_id: '01j',
      number: 3,
      state: 'running'
    });
    expect(words.standing(card!.job, 0, trans)).toBe('running');
  });

  it.each([
    ['of another version', { version: 2 }],
    ['without a job', { job_id: undefined }],
    ['whose job leads elsewhere', { job_id: '../queues' }],
    ['whose number is none', { number: '12' }],
    ['without a state', { state: null }]
  ])('is not read %s', (_, change) => {
    expect(parseCard({ ...JSON_OF_CARD, ...change })).toBeNull();
  });

  it.each([[null], ['text'], [7], [[]], [{}]])('is not read from %p', data => {
    expect(parseCard(data)).toBeNull();
  });

  it('has nothing of fields that are not what they should be', () => {
    const { job, hints, summary } = parsed({
      summary: { toString: 'x' },
      hints: ['yes', 7, null, ['no']],
      progress: { step: 'many', total: {} },
      place: { nodes: 1e12, names: 'abc', gpu_indices: [1] },
      gpus: 'Infinity',
      name: 7
    });
    expect(summary).toBe('');
    expect(hints).toEqual(['yes']);
    expect([job.progress, job.gpus, job.name]).toEqual([null, 0, '']);
    expect(job.attempt!.tasks.length).toBeLessThanOrEqual(10_000);
  });
});

describe('of the notebook and the cluster', () => {
  const card = parsed({ seq: 9, state: 'running' });

  it('the notebook alone is shown while nothing was heard', () => {
    expect(newest(card, undefined)).toBe(card.job);
  });

  it('the newer one is shown', () => {
    const later = jobView({ state: 'stopping', seq: 10 });
    const earlier = jobView({ state: 'starting', seq: 8, can_control: true });
    expect(newest(card, later)).toBe(later);
    expect(newest(card, earlier)).toMatchObject({
      state: 'running',
      progress: card.job.progress,
      can_control: true
    });
  });

  it('an end counts whatever the numbers say', () => {
    const ended = parsed({ seq: undefined, state: 'failed', reason: 'why' });
    const running = jobView({ state: 'running', seq: 1 });
    expect(newest(ended, running)).toMatchObject({
      state: 'failed',
      reason: 'why'
    });
    const done = jobView({ state: 'succeeded', seq: 3 });
    expect(newest(card, done)).toBe(done);
  });
});

describe('a job that is disturbed', () => {
  function entry(given: Partial<HistoryView>): HistoryView {
    return {
      time_us: 0,
      from_state: 'running',
      to_state: 'stopping',
      cause: 'evict',
      actor: 'system:scheduler',
      attempt: 1,
      detail: null,
      ...given
    };
  }

  const evicted = entry({
    detail: 'queue nlp takes 4 of its guaranteed GPUs back for job 40'
  });

  it('says while it stops who wanted what, and what comes next', () => {
    const job = jobView({ state: 'stopping', reason: 'evicted' });
    expect(notice(job, [evicted], trans)).toEqual({
      what: 'Being stopped: evicted: queue nlp takes 4 of its guaranteed GPUs back for job 40',
      next: expect.stringContaining('waits in its queue again')
    });
  });

  it('says when it waits again why its attempt is over', () => {
    const job = jobView({ state: 'pending', attempts_made: 1 });
    const story = [
      entry({ to_state: 'running', cause: 'all_tasks_up' }),
      evicted,
      entry({ to_state: 'pending', cause: 'attempt_over' })
    ];
    expect(notice(job, story, trans)!.what).toBe(
      'Attempt 1 is over: evicted: queue nlp takes 4 of its guaranteed GPUs back for job 40'
    );
  });

  it('names a person who did it', () => {
    const job = jobView({ state: 'stopping', mine: true });
    const by = (actor: string) =>
      notice(job, [entry({ cause: 'cancel', actor })], trans);
    expect(by(job.owner)!.what).toBe('Being stopped: cancelled by you');
    expect(by('uid:0')!.what).toBe('Being stopped: cancelled by uid:0');
    expect(by('uid:0')!.next).toBe('');
  });

  it('tells the strongest cause: a cancellation during an eviction', () => {
    const job = jobView({ state: 'stopping', owner: 'x' });
    const cancelled = entry({ cause: 'cancel', actor: 'uid:0' });
    expect(notice(job, [evicted, cancelled], trans)!.what).toContain(
      'cancelled by uid:0'
    );
  });

  it('has its reason to tell while the history is not known', () => {
    const job = jobView({ state: 'stopping', reason: 'node-1 gets a new fan' });
    expect(notice(job, [], trans)).toEqual({
      what: 'Being stopped: node-1 gets a new fan',
      next: ''
    });
  });

  it('does not take the end of an earlier attempt for its own', () => {
    const job = jobView({ state: 'pending', attempts_made: 2, reason: 'lost' });
    expect(notice(job, [evicted], trans)!.what).toBe('Attempt 2 is over: lost');
  });

  it('is none that runs, waits for the first time or has ended', () => {
    const calm = [
      jobView({ state: 'running' }),
      jobView({ state: 'pending', attempts_made: 0 }),
      jobView({ state: 'cancelled' })
    ];
    expect(calm.map(isDisturbed)).toEqual([false, false, false]);
    expect(notice(calm[0], [evicted], trans)).toBeNull();
  });
});
