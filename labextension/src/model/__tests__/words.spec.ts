/** The same cases as tests/unit/api/test_api_words.py and tests/unit/notebook/test_card.py: one language for all clients. */
import { nullTranslator } from '@jupyterlab/translation';

import { HistoryView, JobView, Progress, TaskView } from '../../api/schemas';
import { attemptView, jobView, progress, STATES, taskView } from '../testing';
import * as words from '../words';

const trans = nullTranslator.load('jupyter_gpucluster');
const SECOND_US = 1e6;

function aJob(given: Partial<JobView> = {}): JobView {
  return jobView({
    number: 12,
    queue: 'vision',
    submitted_us: 0,
    started_us: null,
    attempts_made: 0,
    ...given
  });
}

function aTask(given: Partial<TaskView> = {}): TaskView {
  return taskView({ node: 'node-0', ...given });
}

function anAttempt(tasks: TaskView[]) {
  return attemptView({ tasks });
}

function aProgress(
  step: number,
  total: number | null,
  metrics: Progress['metrics'] = {}
): Progress {
  return progress({ step, total, metrics });
}

describe('durations', () => {
  it.each([
    [-1, '0 ms'],
    [0.024, '24 ms'],
    [0.0999, '0.1 s'],
    [0.42, '0.4 s'],
    [9.96, '10 s'],
    [42, '42 s'],
    [60, '1 min 00 s'],
    [185, '3 min 05 s'],
    [3599.7, '1 h 00 min'],
    [7800, '2 h 10 min'],
    [86400 * 4 + 3 * 3600, '4 d 03 h']
  ])('shows the two largest units of %p s', (seconds, wanted) => {
    expect(words.duration(seconds, trans)).toBe(wanted);
  });
});

describe('figures', () => {
  it.each([
    [0, '0'],
    [0.51234, '0.5123'],
    [0.3, '0.3'],
    [12.5, '12.5'],
    [1234, '1234'],
    [12346, '1.235e+04'],
    [9999.6, '1e+04'],
    [0.0001, '0.0001'],
    [0.00001234, '1.234e-05'],
    [-2.5, '-2.5'],
    [NaN, 'nan'],
    ['inf', 'inf']
  ])('writes %p in few characters', (value, wanted) => {
    expect(words.figure(value)).toBe(wanted);
  });

  it('counts GPUs and shares of one', () => {
    expect(words.gpus(0, trans)).toBe('no GPU');
    expect(words.gpus(1, trans)).toBe('1 GPU');
    expect(words.gpus(2, trans)).toBe('2 GPUs');
    expect(words.gpus(0.5, trans)).toBe('0.5 GPUs');
  });

  it('writes bytes in powers of 1024', () => {
    expect([512, 1536, 3 * 2 ** 30, 2 ** 41].map(words.size)).toEqual([
      '512 B',
      '1.5 KiB',
      '3.0 GiB',
      '2.0 TiB'
    ]);
  });

  it('counts places', () => {
    const places = [1, 2, 3, 4, 11, 12, 13, 21, 112];
    expect(places.map(number => words.ordinal(number, trans))).toEqual([
      '1st',
      '2nd',
      '3rd',
      '4th',
      '11th',
      '12th',
      '13th',
      '21st',
      '112th'
    ]);
  });
});

describe('how a job stands', () => {
  it('says of a waiting job why, and where it stands', () => {
    const job = aJob({
      state: 'pending',
      position: 3,
      waits: 'all 16 GPUs are in use'
    });
    expect(words.standing(job, 0, trans)).toBe(
      'pending, 3rd in queue vision: all 16 GPUs are in use'
    );
  });

  it('tells the place in the queue once', () => {
    const waits =
      'Number 2 in queue vision, behind job 3, which waits: all 16 GPUs are in use.';
    const job = aJob({ state: 'pending', position: 2, waits });
    expect(words.waiting(job, trans)).toBe(waits);
  });

  it('says of a running job where, how far and how fast', () => {
    const job = aJob({
      state: 'running',
      started_us: 0,
      attempts_made: 1,
      attempt: anAttempt([aTask({ gpu_indices: [3, 2] })]),
      progress: aProgress(30, 100, { loss: 0.3 })
    });
    const pace = { stepsPerS: 10, leftS: 7 };
    expect(words.standing(job, 3 * SECOND_US, trans, pace)).toBe(
      'running on node-0 (GPU 2, 3) · step 30/100 · loss 0.3 · 10 steps/s, 7.0 s left'
    );
  });

  it('says of a running job without progress how long it has been running', () => {
    const job = aJob({ started_us: 0, attempt: anAttempt([aTask()]) });
    expect(words.standing(job, 65 * SECOND_US, trans)).toBe(
      'running on node-0 (GPU 0) · 1 min 05 s so far'
    );
    expect(words.elapsed(job, SECOND_US, trans)).toBe('');
  });

  it('says of an ended job how long it took', () => {
    const job = aJob({
      state: 'succeeded',
      started_us: 0,
      ended_us: 65 * SECOND_US,
      attempt: anAttempt([aTask()])
    });
    expect(words.standing(job, 0, trans)).toBe(
      'succeeded after 1 min 05 s · on node-0 (GPU 0)'
    );
  });

  it.each([
    ['failed', 'over the time limit of 2 h', ' · over the time limit of 2 h'],
    ['cancelled', 'cancelled', ''],
    ['cancelled', 'too slow', ' · too slow'],
    ['succeeded', 'all good', '']
  ])('of a job that %s for "%s" tells nothing twice', (state, reason, told) => {
    const job = aJob({ state, reason, started_us: 0, ended_us: SECOND_US });
    expect(words.standing(job, 0, trans)).toBe(`${state} after 1.0 s${told}`);
  });

  it.each([
    [[], ''],
    [[5], '5'],
    [[3, 2], '2, 3'],
    [[7, 6, 5, 4, 3, 2, 1, 0], '0–7'],
    [[0, 2, 3, 5, 6, 7, 7], '0, 2, 3, 5–7']
  ])('draws GPUs in a row together: %p', (indices, wanted) => {
    expect(words.numbers(indices)).toBe(wanted);
  });

  it('names the nodes of a gang, three at most', () => {
    const tasks = ['node-0', 'node-0', 'node-1', 'node-2', 'node-3'].map(
      (node, rank) => aTask({ node, rank })
    );
    expect(words.where(aJob({ attempt: anAttempt(tasks) }), trans)).toBe(
      'on 4 nodes (node-0, node-1, node-2, …)'
    );
    expect(words.where(aJob(), trans)).toBe('');
    const listed = attemptView({ tasks: tasks.slice(0, 3), tasks_left_out: 9 });
    expect(words.where(aJob({ attempt: listed }), trans)).toBe(
      'on at least 2 nodes (node-0, node-1, …)'
    );
  });
});

describe('progress', () => {
  it('tells slow steps by their duration', () => {
    expect(words.paceText({ stepsPerS: 0.25, leftS: null }, trans)).toBe(
      '4.0 s a step'
    );
    expect(words.paceText({ stepsPerS: null, leftS: null }, trans)).toBe('');
    expect(words.paceText({ stepsPerS: 3.3234, leftS: null }, trans)).toBe(
      '3.32 steps/s'
    );
    expect(words.paceText({ stepsPerS: 12345.6, leftS: null }, trans)).toBe(
      '12346 steps/s'
    );
    expect(words.paceText({ stepsPerS: 2, leftS: 0 }, trans)).toBe('2 steps/s');
  });

  it('counts steps, with or without an end', () => {
    expect(words.steps(aProgress(30, 100), trans)).toBe('step 30/100');
    expect(words.steps(aProgress(30, null), trans)).toBe('step 30');
    const epoch = { ...aProgress(3, 4), description: 'epoch' };
    expect(words.steps(epoch, trans)).toBe('epoch 3/4');
    expect(words.percent(aProgress(150, 100))).toBe(100);
    expect(words.percent(aProgress(1, 4))).toBe(25);
    expect(words.percent(aProgress(1, null))).toBeNull();
  });

  it('tells the time to the first step', () => {
    const job = aJob({ submitted_us: 0, first_feedback_us: 3.2 * SECOND_US });
    expect(words.firstFeedback(job, trans)).toBe('first step after 3.2 s');
    expect(words.firstFeedback(aJob(), trans)).toBe('');
  });
});

describe('history', () => {
  function entry(
    to_state: string,
    cause: string,
    detail: string | null
  ): HistoryView {
    return {
      time_us: 0,
      from_state: null,
      to_state,
      cause,
      actor: 'system',
      attempt: 1,
      detail
    };
  }

  it.each([
    [entry('pending', 'submitted', null), 'submitted'],
    [entry('running', 'all_tasks_up', null), 'all tasks are up'],
    [
      entry('failed', 'failed', 'ended with exit code 3'),
      'ended with exit code 3'
    ],
    [
      entry('failed', 'time_limit', 'reached its time limit of 5 s'),
      'reached its time limit of 5 s'
    ],
    [entry('stopping', 'cancel', 'cancelled'), 'cancelled'],
    [entry('stopping', 'cancel', 'wrong data'), 'cancelled: wrong data'],
    [entry('cancelled', 'cancel', 'wrong data'), 'wrong data'],
    [entry('cancelled', 'cancel', 'cancelled'), ''],
    [
      entry('pending', 'drain', 'node-1 gets a new fan'),
      'its node is being emptied: node-1 gets a new fan'
    ],
    [entry('failed', '', null), '']
  ])('says in words what happened, and nothing twice', (line, wanted) => {
    expect(words.happening(line, trans)).toBe(wanted);
  });

  it('shows a cause of a later scheduler as it is called', () => {
    expect(words.causeText('a_later_cause', trans)).toBe('a later cause');
  });

  it('tells of a log that is gone', () => {
    expect(words.goneText({ attempt: 2 }, trans)).toBe(
      'the log of attempt 2 is no longer there'
    );
    const noon = new Date(2026, 2, 1, 12).getTime() * words.US_PER_MS;
    expect(
      words.goneText(
        { attempt: 2, time_us: noon, reason: 'the retention of 30 days' },
        trans
      )
    ).toBe(
      'the log of attempt 2 was removed on 2026-03-01 by the retention of 30 days'
    );
  });
});

describe('times of day', () => {
  const noon = new Date(2026, 2, 1, 12, 3, 5).getTime() * words.US_PER_MS;

  it('are local, with the day when it is another one', () => {
    expect(words.localTime(noon, noon + SECOND_US)).toBe('12:03:05');
    expect(words.localTime(noon, noon + 86400 * SECOND_US)).toBe(
      '2026-03-01 12:03:05'
    );
  });

  it('have their zone in the tooltip', () => {
    expect(words.zonedTime(noon)).toMatch(
      /2026.*12:03:05.*(UTC|GMT|[A-Z]{2,})/
    );
  });

  it('tell how long ago the cluster was heard', () => {
    expect(words.lastUpdate(1000, 13_100, trans)).toBe('last update 12 s ago');
    expect(words.lastUpdate(1000, 3000, trans)).toBe('last update 2 s ago');
    expect(words.lastUpdate(1000, 91_000, trans)).toBe(
      'last update 1 min 30 s ago'
    );
    expect(words.lastUpdate(null, 13_000, trans)).toBe('');
  });
});

it('names every state, and one of a later version as it is called', () => {
  expect(STATES.map(state => words.stateLabel(state, trans))).toEqual(STATES);
  expect(words.stateLabel('hibernating', trans)).toBe('hibernating');
});
