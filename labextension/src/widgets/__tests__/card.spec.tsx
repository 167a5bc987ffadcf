import { RenderMimeRegistry } from '@jupyterlab/rendermime';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { PartialJSONObject } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import { act, fireEvent, screen } from '@testing-library/react';

import { ApiError } from '../../api/errors';
import { StreamItem } from '../../api/schemas';
import { IChannelHandler, IStreams } from '../../api/streams';
import {
  attemptView,
  FakeCluster,
  fakeCluster,
  jobView,
  liveStatus,
  NOW_US,
  progress,
  taskView
} from '../../model/testing';
import { CARD_MIME } from '../../notebook/card';
import { CommandIDs } from '../../tokens';
import { CardRenderer, cardFactory } from '../cardRenderer';

const trans = nullTranslator.load('jupyter_gpucluster');

const SUBMITTED = {
  version: 1,
  job_id: 'j12',
  number: 12,
  name: 'train-resnet',
  state: 'pending',
  queue: 'vision',
  gpus: 2,
  tasks: 1,
  simulated: true,
  submitted_us: NOW_US - 10e6,
  attempts_made: 0,
  seq: 1,
  hints: [],
  notes: [],
  warnings: [],
  drawing: { fills_cell: true }
};

const LIVE = {
  id: 'j12',
  number: 12,
  name: 'train-resnet',
  queue: 'vision',
  gpus: 2,
  submitted_us: NOW_US - 10e6,
  started_us: NOW_US - 9e6,
  attempt: attemptView({
    tasks: [taskView({ node: 'node-0', gpu_indices: [2, 3] })]
  }),
  seq: 5
};

/** Streams of which a test has the handlers in its hands. */
class FakeStreams {
  readonly opened: IChannelHandler<StreamItem>[] = [];
  readonly closed: IChannelHandler<StreamItem>[] = [];

  open(handler: IChannelHandler<StreamItem>) {
    this.opened.push(handler);
    return { isDisposed: false, dispose: () => this.closed.push(handler) };
  }
}

/** An IntersectionObserver that a test moves things into view and out of it with. */
class FakeObserver {
  static readonly all = new Set<FakeObserver>();

  static look(isIntersecting: boolean): void {
    act(() => FakeObserver.all.forEach(each => each.tell(isIntersecting)));
  }

  constructor(private readonly callback: IntersectionObserverCallback) {}

  observe(): void {
    FakeObserver.all.add(this);
    this.tell(true);
  }

  disconnect(): void {
    FakeObserver.all.delete(this);
  }

  private tell(isIntersecting: boolean): void {
    const entry = { isIntersecting } as IntersectionObserverEntry;
    this.callback([entry], this as unknown as IntersectionObserver);
  }
}

let renderer: CardRenderer;
let commands: CommandRegistry;
let streams: FakeStreams;

/** A card in the page, as an output area puts it there. */
async function show(
  card: PartialJSONObject,
  cluster: FakeCluster,
  bundle: PartialJSONObject = {}
): Promise<void> {
  commands = new CommandRegistry();
  streams = new FakeStreams();
  renderer = new CardRenderer({
    cluster,
    commands,
    trans,
    streams: streams as unknown as IStreams
  });
  await update(card, bundle);
  await act(async () => Widget.attach(renderer, document.body));
}

async function update(
  card: PartialJSONObject,
  bundle: PartialJSONObject = {}
): Promise<void> {
  const model = new RenderMimeRegistry().createModel({
    data: { ...bundle, [CARD_MIME]: card }
  });
  await act(() => renderer.renderModel(model));
}

function shown(): string {
  return (renderer.node.textContent ?? '').replace(/\s+/g, ' ');
}

/** The cluster tells of a job. */
async function tell(
  cluster: FakeCluster,
  given: Parameters<typeof jobView>[0]
): Promise<void> {
  const job = jobView({ ...LIVE, ...given });
  cluster.jobs = [job];
  await act(async () => cluster.emit({ jobs: new Set([job.id]) }));
}

const button = (name: string) => screen.getByRole('button', { name });

beforeEach(() => {
  window.IntersectionObserver =
    FakeObserver as unknown as typeof IntersectionObserver;
  jest.spyOn(Date, 'now').mockReturnValue(NOW_US / 1000);
});

afterEach(async () => {
  await act(async () => renderer.dispose());
  jest.restoreAllMocks();
});

describe('the card of a waiting job', () => {
  it('says where it stands and why it waits', async () => {
    await show({ ...SUBMITTED, position: 3 }, fakeCluster());
    expect(
      screen.getByRole('region', { name: 'job 12 train-resnet: pending' })
    ).toBeTruthy();
    expect(shown()).toContain('3rd in queue vision');
  });

  it('is brought up to date by the cluster, and its GPUs are called simulated', async () => {
    const cluster = fakeCluster();
    await show({ ...SUBMITTED, position: 3 }, cluster);
    await tell(cluster, {
      state: 'pending',
      position: 2,
      waits: 'all 16 GPUs are in use',
      attempt: null
    });
    expect(shown()).toContain('2nd in queue vision: all 16 GPUs are in use');
    expect(shown()).toContain('2 GPUs simulated');
  });

  it('takes it from its own cluster that GPUs are simulated', async () => {
    const cluster = fakeCluster({ status: liveStatus({ simulated: true }) });
    await show({ ...SUBMITTED, simulated: false }, cluster);
    expect(screen.queryByText('simulated')).toBeNull();
    await tell(cluster, { state: 'pending' });
    expect(screen.getByText('simulated')).toBeTruthy();
  });
});

describe('the card of a running job', () => {
  const running = {
    state: 'running',
    progress: progress({
      step: 30,
      total: 100,
      metrics: { lr: 0.1, loss: 0.31 }
    }),
    first_feedback_us: NOW_US - 6.8e6
  };

  function withReports(): FakeCluster {
    const cluster = fakeCluster();
    cluster.reports.j12 = [10, 20, 30].map((step, index) =>
      progress({
        step,
        total: 100,
        metrics: { lr: 0.1, loss: 0.9 - index * 0.295 },
        time_us: NOW_US - (2 - index) * 1e6
      })
    );
    return cluster;
  }

  it('says where, how far, how fast and how soon it told something', async () => {
    const cluster = withReports();
    await show(SUBMITTED, cluster);
    await tell(cluster, running);
    expect(shown()).toContain('on node-0 (GPU 2, 3)');
    const bar = screen.getByRole('progressbar', {
      name: 'job 12 train-resnet'
    });
    expect(bar.getAttribute('aria-valuetext')).toBe('step 30/100');
    const figures = renderer.node.querySelector('.jp-gpucluster-cardFigures')!;
    expect(
      [...figures.children].map(child => child.firstChild!.textContent)
    ).toEqual(
      expect.arrayContaining(['step 30/100', '10 steps/s', '7.0 s left'])
    );
    expect(shown()).toContain('first step after 3.2 s');
  });

  it('draws the course of the loss and has the other metrics in figures', async () => {
    const cluster = withReports();
    await show(SUBMITTED, cluster);
    await tell(cluster, running);
    expect(
      screen.getByRole('img', {
        name: 'loss: first 0.9, last 0.31, lowest 0.31, highest 0.9'
      })
    ).toBeTruthy();
    expect(shown()).toContain('lr 0.1');
    expect(cluster.asked).toEqual([['loadSteps', 'j12']]);
  });

  it('lets the time that is left run between two reports', async () => {
    const ticks: (() => void)[] = [];
    jest.spyOn(window, 'setInterval').mockImplementation(tick => {
      ticks.push(tick as () => void);
      return 0 as never;
    });
    const cluster = withReports();
    await show(SUBMITTED, cluster);
    await tell(cluster, running);
    jest.spyOn(Date, 'now').mockReturnValue(NOW_US / 1000 + 3000);
    act(() => ticks.forEach(tick => tick()));
    expect(shown()).toContain('4.0 s left');
  });

  it('says how long it has been running when it reports nothing', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    await tell(cluster, { state: 'running', started_us: NOW_US - 65e6 });
    expect(shown()).toContain('1 min 05 s so far');
  });

  it('tells a screen reader each state once, and no progress', async () => {
    const cluster = withReports();
    await show(SUBMITTED, cluster);
    const status = () => screen.getByRole('status').textContent;
    expect(status()).toBe('');
    await tell(cluster, running);
    expect(status()).toBe('job 12 train-resnet, running');
    await tell(cluster, {
      ...running,
      progress: progress({ step: 31, total: 100 })
    });
    expect(status()).toBe('job 12 train-resnet, running');
  });

  it('opens its log', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    const opened = jest.fn();
    commands.addCommand(CommandIDs.openLog, { execute: opened });
    await tell(cluster, running);
    fireEvent.click(button('Open log of job 12'));
    expect(opened).toHaveBeenCalledWith({ job: 'j12' });
  });

  it('is cancelled from the card', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    await tell(cluster, running);
    fireEvent.click(button('Cancel job 12'));
    await act(async () => {
      fireEvent.click(button('Yes'));
    });
    expect(cluster.asked).toContainEqual(['cancel', 'j12']);
    expect(button('Cancelling…')).toBeTruthy();
    await tell(cluster, { state: 'cancelled', ended_us: NOW_US });
    expect(screen.queryByRole('button')).toBeNull();
    expect(document.activeElement).toBe(screen.getByRole('region'));
  });

  it('says why it may not be cancelled', async () => {
    const cluster = fakeCluster();
    cluster.answers.cancel = () => {
      const reason = 'Job 12 is not yours.';
      throw new ApiError(403, { code: 'forbidden', reason });
    };
    await show(SUBMITTED, cluster);
    await tell(cluster, running);
    fireEvent.click(button('Cancel job 12'));
    await act(async () => {
      fireEvent.click(button('Yes'));
    });
    expect(screen.getByRole('alert').textContent).toBe('Job 12 is not yours.');
  });

  it('keeps the focus of a button when kernel or cluster have news', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    await tell(cluster, running);
    const cancel = button('Cancel job 12');
    cancel.focus();
    await update({ ...SUBMITTED, state: 'running', seq: 6, notes: ['a note'] });
    await tell(cluster, { ...running, seq: 7, reason: 'x' });
    expect(shown()).toContain('note: a note');
    expect(button('Cancel job 12')).toBe(cancel);
    expect(document.activeElement).toBe(cancel);
  });
});

describe('the card of a job that was disturbed', () => {
  it('says calmly what happened and why, asked once', async () => {
    const cluster = fakeCluster();
    cluster.answers.history = () => [
      {
        time_us: NOW_US,
        from_state: 'running',
        to_state: 'stopping',
        cause: 'evict',
        actor: 'system:scheduler',
        attempt: 1,
        detail: 'queue nlp takes its guaranteed GPUs back'
      }
    ];
    await show(SUBMITTED, cluster);
    await tell(cluster, { state: 'stopping', reason: 'evicted' });
    await tell(cluster, { state: 'stopping', reason: 'evicted' });
    expect(shown()).toContain(
      'Being stopped: evicted: queue nlp takes its guaranteed GPUs back.'
    );
    expect(cluster.asked).toEqual([['history', 'j12']]);
    await tell(cluster, {
      state: 'pending',
      attempts_made: 1,
      position: 1,
      waits: 'starts when 2 GPUs are free'
    });
    expect(shown()).toContain('Attempt 1 is over: evicted');
    expect(shown()).not.toContain('node-0'); // where it ran before
    expect(shown()).toContain(
      '1st in queue vision: starts when 2 GPUs are free'
    );
  });
});

describe('the card of a job that has ended', () => {
  const failed = {
    ...SUBMITTED,
    state: 'failed',
    reason: 'ended with exit code 3',
    started_us: NOW_US - 65e6,
    ended_us: NOW_US,
    attempts_made: 1,
    summary: 'in: X · out: nothing',
    limits: 'memory 8.0 GiB by cgroup v1',
    hints: ['%attach 12 comes back'],
    warnings: ['net is not defined']
  };

  it('stands in the notebook and is asked for nowhere', async () => {
    const cluster = fakeCluster();
    await show(failed, cluster);
    for (const text of [
      'failed after 1 min 05 s',
      'ended with exit code 3',
      'in: X · out: nothing',
      'limits: memory 8.0 GiB by cgroup v1',
      '%attach 12 comes back'
    ]) {
      expect(shown()).toContain(text);
    }
    expect(shown()).not.toContain('net is not defined'); // stands below it
    expect(cluster.interests.size).toBe(0);
    expect(cluster.asked).toEqual([]);
  });

  it('is asked for once when there is a course to draw, and then no more', async () => {
    const cluster = fakeCluster();
    const metrics = { loss: 0.5 };
    await show(
      { ...failed, progress: { step: 9, total: 9, metrics } },
      cluster
    );
    expect([...cluster.interests]).toEqual([{ jobs: ['j12'] }]);
    expect(cluster.asked).toEqual([]); // perhaps the cluster does not know it
    cluster.reports.j12 = [1, 2].map(step =>
      progress({ step, metrics: { loss: 1 / step }, time_us: NOW_US + step })
    );
    const last = progress({ step: 9, total: 9, metrics });
    await tell(cluster, { state: 'failed', seq: 2, progress: last });
    expect(cluster.asked).toEqual([['loadSteps', 'j12']]);
    expect(cluster.interests.size).toBe(0);
    expect(
      screen.getByRole('img', { name: /^loss: first 1, last 0.5/ })
    ).toBeTruthy();
  });

  it('is asked nothing more once the cluster does not know it', async () => {
    const cluster = fakeCluster();
    await show(
      { ...failed, progress: { step: 9, metrics: { loss: 1 } } },
      cluster
    );
    cluster.gone = ['j12'];
    await act(async () => cluster.emit({ jobs: new Set(['j12']) }));
    expect(cluster.interests.size).toBe(0);
    expect(cluster.asked).toEqual([]);
    expect(shown()).not.toContain('does not know'); // nothing is missing
  });

  it('is followed until its end is heard, and no longer', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    expect([...cluster.interests]).toEqual([{ jobs: ['j12'] }]);
    await tell(cluster, { state: 'succeeded', ended_us: NOW_US });
    expect(cluster.interests.size).toBe(0);
    cluster.jobs = []; // forgotten by the page
    act(() => cluster.emit({ jobs: new Set(['j12']) }));
    expect(shown()).toContain('succeeded after 9.0 s');
  });

  it('has its warnings when nothing else in the cell shows them', async () => {
    await show({ ...failed, drawing: undefined }, fakeCluster());
    expect(shown()).toContain('warning: net is not defined');
  });
});

describe('a card without news', () => {
  it('says how long ago the cluster was heard when it is away', async () => {
    const cluster = fakeCluster({
      connection: {
        state: 'away',
        reason: 'the scheduler is away',
        hint: null
      },
      heardMs: NOW_US / 1000 - 12_000
    });
    await show({ ...SUBMITTED, state: 'running' }, cluster);
    expect(shown()).toContain('last update 12 s ago · the scheduler is away');
  });

  it('notices by itself that nothing is heard any more', async () => {
    const ticks: (() => void)[] = [];
    jest.spyOn(window, 'setInterval').mockImplementation(tick => {
      ticks.push(tick as () => void);
      return 0 as never;
    });
    await show({ ...SUBMITTED, state: 'running' }, fakeCluster());
    expect(shown()).not.toContain('last update');
    jest.spyOn(Date, 'now').mockReturnValue(NOW_US / 1000 + 40_000);
    act(() => ticks.forEach(tick => tick()));
    expect(shown()).toContain(
      'last update 40 s ago · the scheduler does not answer'
    );
  });

  it('says that this cluster does not know its job, and shows what is known', async () => {
    const cluster = fakeCluster({ gone: ['j12'] });
    const started_us = NOW_US - 600e6;
    await show(
      { ...SUBMITTED, state: 'running', started_us, progress: null },
      cluster
    );
    expect(shown()).toContain('this cluster does not know this job (any more)');
    expect(shown()).not.toContain('so far'); // it may have ended long ago
    expect(screen.getByRole('region').getAttribute('aria-label')).toBe(
      'job 12 train-resnet: running'
    );
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('is not followed when it is out of sight', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    FakeObserver.look(false);
    expect(cluster.interests.size).toBe(0);
    FakeObserver.look(true);
    expect(cluster.interests.size).toBe(1);
  });

  it('is not followed when it is off the page', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    expect(cluster.interests.size).toBe(1);
    await act(async () => Widget.detach(renderer)); // as a notebook does with cells far away
    expect(cluster.interests.size).toBe(0);
    await act(async () => Widget.attach(renderer, document.body));
    expect(cluster.interests.size).toBe(1);
  });
});

describe('the end of the log', () => {
  const nowait = { ...SUBMITTED, drawing: undefined };
  const record: StreamItem = {
    type: 'record',
    kind: 'stdout',
    payload: btoa('epoch 1\nepoch 2\n')
  };

  it('is shown where the cell does not show the output, and stays after the end', async () => {
    const cluster = fakeCluster();
    await show(nowait, cluster);
    expect(streams.opened).toHaveLength(0);
    await tell(cluster, { state: 'running' });
    expect(streams.opened[0].start().path).toBe('jobs/j12/log');
    act(() => void streams.opened[0].onItems([record]));
    expect(shown()).toContain('epoch 1');
    await tell(cluster, { state: 'succeeded', ended_us: NOW_US });
    const last = { ...record, payload: btoa('done\n') }; // comes after the end is known
    act(() => void streams.opened[0].onItems([last]));
    act(() => streams.opened[0].onEnded!());
    expect(shown()).toContain('done');
    FakeObserver.look(false);
    FakeObserver.look(true);
    expect(streams.opened).toHaveLength(1); // everything was read
  });

  it('is not asked for while nobody sees it', async () => {
    const cluster = fakeCluster();
    await show(nowait, cluster);
    await tell(cluster, { state: 'running' });
    FakeObserver.look(false);
    expect(streams.closed).toEqual(streams.opened);
    FakeObserver.look(true);
    expect(streams.opened).toHaveLength(2);
  });

  it('is not asked for where the outputs stand below, nor of a stranger', async () => {
    const cluster = fakeCluster();
    await show(SUBMITTED, cluster);
    await tell(cluster, { state: 'running' });
    expect(streams.opened).toHaveLength(0);
    await tell(cluster, { state: 'running', can_read: false, seq: 6 });
    await update(nowait);
    expect(streams.opened).toHaveLength(0);
  });

  it('of a job that prints very much is not followed', async () => {
    const cluster = fakeCluster();
    await show(nowait, cluster);
    await tell(cluster, { state: 'running' });
    const flood = { ...record, payload: btoa('x'.repeat(100_000)) };
    act(() => void streams.opened[0].onItems([flood]));
    expect(streams.closed).toEqual([streams.opened[0]]);
  });
});

describe('what stands in a notebook', () => {
  const EVIL = '<img src=x onerror="window.hacked = true">';

  it('is shown as text whatever it is', async () => {
    await show(
      {
        ...SUBMITTED,
        name: EVIL,
        queue: EVIL,
        state: 'failed',
        reason: EVIL,
        summary: EVIL,
        hints: [EVIL],
        notes: [EVIL],
        place: { nodes: 1, names: [EVIL], gpu_indices: [0] },
        progress: {
          step: 1,
          total: 2,
          description: EVIL,
          metrics: { [EVIL]: 1 }
        }
      },
      fakeCluster()
    );
    expect(renderer.node.querySelector('img')).toBeNull();
    expect(shown().split(EVIL).length - 1).toBeGreaterThanOrEqual(8);
  });

  it('of another version is shown by its text', async () => {
    const bundle = { 'text/plain': `● job 12 ${EVIL}` };
    await show({ ...SUBMITTED, version: 99 }, fakeCluster(), bundle);
    expect(shown()).toContain(`● job 12 ${EVIL}`);
    expect(shown()).toContain('another version of jupyter-gpucluster');
    expect(renderer.node.querySelector('img')).toBeNull();
  });

  it('may be drawn when it is not trusted, before html', async () => {
    await show(SUBMITTED, fakeCluster());
    const registry = new RenderMimeRegistry({
      initialFactories: [
        {
          safe: true,
          mimeTypes: ['text/html'],
          defaultRank: 50,
          createRenderer: () => renderer
        }
      ]
    });
    registry.addFactory(
      cardFactory({ cluster: fakeCluster(), commands, trans, streams: null })
    );
    const bundle = { 'text/html': '', [CARD_MIME]: SUBMITTED };
    expect(registry.preferredMimeType(bundle, 'ensure')).toBe(CARD_MIME);
  });
});
