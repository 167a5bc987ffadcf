import './noCanvas';

import { Toolbar } from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { MessageLoop } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { act, fireEvent, screen, within } from '@testing-library/react';
import axe from 'axe-core';

import { ApiError } from '../../api/errors';
import { StreamItem } from '../../api/schemas';
import { IChannelHandler, IChannelStart, IStreams } from '../../api/streams';
import { LogScene, trans } from '../../model/__tests__/logRecords';
import { FakeCluster, fakeCluster, jobView } from '../../model/testing';
import { LogPanel } from '../logPanel';
import { IFound, ISearch, LogTerminal } from '../logTerminal';
import { fillToolbar } from '../logToolbar';

/** A terminal as far as the panel and its parts use one. */
class FakeTerminal {
  text = '';
  isFollowing = true;
  isPaging = false;
  isHolding = false;
  isFull = false;
  newLines = 0;
  found: IFound = { count: 0, at: -1 };
  changed = new Signal<this, void>(this);
  calls: unknown[] = [];

  async write(text: string): Promise<void> {
    this.text += text;
  }
  clear(): void {
    this.text = '';
  }
  find(search: ISearch, direction: string): void {
    this.calls.push(['find', search.text, direction]);
  }
  clearSearch(): void {
    this.calls.push('clearSearch');
  }
  focus(): void {
    this.calls.push('focus');
  }
  fit(): void {}
  restyle(): void {}
  dispose(): void {}
}

/** One channel, which the test sends on. */
class FakeStreams {
  handler: IChannelHandler<StreamItem> | null = null;
  starts: IChannelStart[] = [];

  open(handler: IChannelHandler<StreamItem>): IDisposable {
    this.handler = handler;
    this.starts.push(handler.start());
    return {
      isDisposed: false,
      dispose: () => {
        this.handler = null;
      }
    };
  }
}

let terminal: FakeTerminal;
let streams: FakeStreams;
let cluster: FakeCluster;
let scene: LogScene;
let panel: LogPanel;
let fetched: unknown[];
let file: () => Promise<Blob>;

/** Until everything that was asked for is done and drawn. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) {
    await act(() => new Promise(done => window.setTimeout(done, 20)));
  }
}

async function send(...items: StreamItem[]): Promise<void> {
  await act(async () => {
    await streams.handler?.onItems(items);
  });
  await settled();
}

async function show(log = { rank: 0, attempt: null as number | null }) {
  panel = new LogPanel({
    log: { job: 'job1', ...log },
    cluster,
    streams: streams as unknown as IStreams,
    trans,
    fetchWhole: (...args) => {
      fetched.push(args[0]);
      return file();
    }
  });
  act(() => Widget.attach(panel, document.body));
  await settled();
}

beforeEach(() => {
  window.ResizeObserver = class {
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {}
  };
  terminal = new FakeTerminal();
  jest
    .spyOn(LogTerminal, 'open')
    .mockResolvedValue(terminal as unknown as LogTerminal);
  streams = new FakeStreams();
  cluster = fakeCluster({ jobs: [jobView()] });
  scene = new LogScene();
  fetched = [];
  file = async () => new Blob(['all']);
});

afterEach(() => {
  act(() => panel.dispose());
  document.body.replaceChildren();
  jest.restoreAllMocks();
});

const button = (name: string | RegExp) => screen.getByRole('button', { name });

describe('only while somebody looks', () => {
  test('job and log are asked for', async () => {
    await show({ rank: 2, attempt: null });
    expect([...cluster.interests]).toEqual([
      { topics: ['status'], jobs: ['job1'] }
    ]);
    expect(streams.starts[0]).toMatchObject({
      path: 'jobs/job1/log',
      query: { rank: '2' }
    });
    act(() => panel.hide());
    expect([cluster.interests.size, streams.handler]).toEqual([0, null]);
    act(() => panel.show());
    await settled();
    expect([cluster.interests.size, streams.starts.length]).toEqual([1, 2]);
    act(() => panel.dispose());
    expect([cluster.interests.size, streams.handler]).toEqual([0, null]);
  });

  test('a panel that is closed before its terminal is loaded leaves nothing behind', async () => {
    let loaded: (terminal: LogTerminal) => void = () => undefined;
    jest.spyOn(LogTerminal, 'open').mockReturnValue(
      new Promise(done => {
        loaded = done;
      })
    );
    const dispose = jest.spyOn(terminal, 'dispose');
    await show();
    act(() => panel.dispose());
    loaded(terminal as unknown as LogTerminal);
    await settled();
    expect(dispose).toHaveBeenCalled();
    expect(streams.starts).toEqual([]);
  });
});

test('a cluster that goes on does not know a panel that was closed', async () => {
  await show();
  act(() => panel.dispose());
  const asked = jest.spyOn(cluster, 'job');
  cluster.emit();
  expect(asked).not.toHaveBeenCalled();
});

describe('the head', () => {
  test('tells whose job it is, how it stands, and that its GPUs are simulated', async () => {
    cluster.status = { simulated: true } as typeof cluster.status;
    cluster.jobs = [
      jobView({
        mine: false,
        progress: {
          step: 3,
          total: 10,
          metrics: {},
          time_us: 0,
          rank: 0,
          source: 'report',
          description: null
        }
      })
    ];
    await show();
    expect(screen.getByText('job 1 train')).toBeTruthy();
    expect(screen.getByText(/of ada/)).toBeTruthy();
    expect(screen.getByText(/running.*step 3\/10/)).toBeTruthy();
    expect(screen.getByText('simulated')).toBeTruthy();
    const bar = screen.getByRole('progressbar', { name: 'job 1 train' });
    expect(bar.getAttribute('aria-valuenow')).toBe('30');
  });

  test('says since when nothing comes and why, and tries again when asked; the text stays', async () => {
    await show();
    await send(scene.add('stdout', 'kept\n'));
    const body = { code: 'x', reason: 'the scheduler is away', hint: 'Wait.' };
    act(() => streams.handler!.onAway!(new ApiError(502, body)));
    await settled();
    expect(screen.getByText(/^Last update .* ago\.$/)).toBeTruthy();
    expect(screen.getByText('The scheduler is away. Wait.')).toBeTruthy();
    fireEvent.click(button('Retry'));
    expect(cluster.asked).toContainEqual(['retry']);
    expect(terminal.text).toBe('kept\n');
    act(() => streams.handler!.onAway!(null));
    await settled();
    expect(screen.queryByText(/Last update/)).toBeNull();
  });

  test("a stranger's log that may not be read is the API's sentence, not a blank page", async () => {
    await show();
    const reason = 'only ada may read the outputs of job 1';
    const error = new ApiError(403, { code: 'forbidden', reason });
    act(() => streams.handler!.onFailed!(error));
    await settled();
    expect(screen.getByRole('alert').textContent).toBe(
      'Only ada may read the outputs of job 1.'
    );
  });

  test('a terminal that cannot be loaded is said', async () => {
    jest
      .spyOn(LogTerminal, 'open')
      .mockRejectedValue(new Error('chunk 7 is missing'));
    await show();
    expect(screen.getByRole('alert').textContent).toContain(
      'chunk 7 is missing'
    );
  });

  test('a job that the cluster forgets keeps its head', async () => {
    await show();
    cluster.jobs = [];
    act(() => cluster.emit());
    await settled();
    expect(screen.getByText('job 1 train')).toBeTruthy();
  });
});

describe('what stands above', () => {
  test('is told in records and bytes, and shown from the beginning when asked', async () => {
    await show();
    for (let number = 0; number < 1500; number++) {
      scene.add('stdout', 'x'.repeat(100));
    }
    await send(...scene.all.slice(1400));
    expect(
      screen.getByText(/^1,400 earlier records are not shown \(175\.0 KiB\)$/)
    ).toBeTruthy();
    fireEvent.click(button('Load from the beginning'));
    await settled();
    expect([terminal.text, terminal.isFollowing, terminal.isPaging]).toEqual([
      '',
      false,
      true
    ]);
    expect(streams.starts[1].query).toEqual({ rank: '0', follow: '1' });
    expect(screen.queryByText(/earlier records/)).toBeNull();
  });

  test('earlier attempts are told, with what became of them in the text', async () => {
    cluster.answers.history = () => [
      {
        time_us: 0,
        from_state: 'running',
        to_state: 'pending',
        cause: 'evict',
        actor: '',
        attempt: 1,
        detail: null
      }
    ];
    await show();
    await send(scene.begin(['node-3']), scene.add('stdout', 'two\n'));
    expect(screen.getByText('1 earlier attempt is not shown')).toBeTruthy();
    expect(terminal.text).toContain(
      'attempt 2 on node-3 (attempt 1 was evicted)'
    );
  });

  test('lines that were pushed out are said to be', async () => {
    await show();
    await send(scene.add('stdout', 'x'));
    expect(screen.queryByText(/Earlier lines/)).toBeNull();
    terminal.isFull = true;
    act(() => terminal.changed.emit());
    await settled();
    expect(
      screen.getByText('Earlier lines are not shown: this page keeps 20,000.')
    ).toBeTruthy();
  });

  test('the whole log is downloaded under the name of the job', async () => {
    const names: string[] = [];
    URL.createObjectURL = () => 'blob:x';
    URL.revokeObjectURL = () => undefined;
    jest
      .spyOn(HTMLAnchorElement.prototype, 'click')
      .mockImplementation(function (this: HTMLAnchorElement) {
        names.push(this.download);
      });
    cluster.jobs = [jobView({ number: 12, id: 'job1', name: 'a/b: ünder c' })];
    await show({ rank: 1, attempt: 2 });
    await act(() => panel.downloadWhole());
    expect(fetched).toEqual([{ job: 'job1', rank: 1, attempt: 2 }]);
    expect(names).toEqual(['job-12-a-b-ünder-c-rank-1-attempt-2.log']);
  });

  test('a download that fails is said', async () => {
    file = async () => {
      throw new ApiError(410, { code: 'gone', reason: 'It is gone.' });
    };
    await show();
    await act(() => panel.downloadWhole());
    await settled();
    expect(screen.getByRole('alert').textContent).toBe('It is gone.');
  });
});

describe('the end', () => {
  test('a job that has not begun is said to have no log yet', async () => {
    cluster.jobs = [jobView({ state: 'pending', attempts_made: 0 })];
    await show();
    expect(
      screen.getByText('The job has not begun; its log begins with it.')
    ).toBeTruthy();
  });

  test('a job that wrote nothing is said to have written nothing', async () => {
    await show();
    await send(scene.add('status', { event: 'up', limit_means: {} }));
    expect(screen.getByText('Nothing was written yet.')).toBeTruthy();
    cluster.jobs = [jobView({ state: 'succeeded' })];
    act(() => streams.handler!.onEnded!());
    await settled();
    expect(screen.getByText('Nothing was written.')).toBeTruthy();
  });

  test('new lines are counted while the end is out of view, and gone to', async () => {
    await show();
    await send(scene.add('stdout', 'x\n'));
    Object.assign(terminal, { isFollowing: false, newLines: 1234 });
    act(() => terminal.changed.emit());
    await settled();
    fireEvent.click(button('1,234 new lines, go to the end'));
    expect(terminal.isFollowing).toBe(true);
  });

  test('where text waits for the reader, the end is gone to by asking for it', async () => {
    await show();
    await send(scene.add('stdout', 'x\n'));
    const state = { isFollowing: false, isHolding: true, isPaging: true };
    Object.assign(terminal, state);
    act(() => terminal.changed.emit());
    await settled();
    expect(screen.getByText('More is loaded as you scroll down.')).toBeTruthy();
    fireEvent.click(button('Go to the end'));
    expect(streams.starts[1].query).toHaveProperty('tail');
    expect(terminal.isFollowing).toBe(true);
  });
});

describe('the search', () => {
  const field = () => screen.getByRole('textbox') as HTMLInputElement;

  beforeEach(async () => {
    await show();
    await send(scene.add('stdout', 'x\n'));
    await act(async () => panel.openSearch());
  });

  test('takes the focus, finds while one types, and goes on with Enter', () => {
    expect(document.activeElement).toBe(field());
    fireEvent.change(field(), { target: { value: 'loss' } });
    fireEvent.keyDown(field(), { key: 'Enter' });
    fireEvent.keyDown(field(), { key: 'Enter', shiftKey: true });
    fireEvent.click(button('Next match'));
    fireEvent.click(button('Previous match'));
    expect(terminal.calls.slice(-5)).toEqual([
      ['find', 'loss', 'next'],
      ['find', 'loss', 'next'],
      ['find', 'loss', 'previous'],
      ['find', 'loss', 'next'],
      ['find', 'loss', 'previous']
    ]);
  });

  test.each([
    [{ count: 0, at: -1 }, 'not found'],
    [{ count: 12, at: 2 }, '3 of 12'],
    [{ count: 12, at: -1 }, '12'],
    [{ count: 1000, at: 4 }, '1,000 or more']
  ])('tells how many there are: %j', async (found, text) => {
    fireEvent.change(field(), { target: { value: 'loss' } });
    terminal.found = found;
    act(() => terminal.changed.emit());
    await settled();
    const search = within(screen.getByRole('search'));
    expect(search.getByRole('status').textContent).toBe(text);
  });

  test('says what is wrong with a regular expression, and does not look for it', () => {
    fireEvent.change(field(), { target: { value: '[(' } });
    terminal.calls = [];
    fireEvent.click(button('Regular expression'));
    expect(button('Regular expression').getAttribute('aria-pressed')).toBe(
      'true'
    );
    expect(screen.getByText(/^Not a regular expression: /)).toBeTruthy();
    expect(field().getAttribute('aria-invalid')).toBe('true');
    expect(terminal.calls).toEqual(['clearSearch']);
  });

  test('Escape closes it and gives the focus back', async () => {
    fireEvent.change(field(), { target: { value: 'loss' } });
    terminal.calls = [];
    fireEvent.keyDown(field(), { key: 'Escape' });
    await settled();
    expect(screen.queryByRole('search')).toBeNull();
    expect(terminal.calls).toEqual(['clearSearch', 'focus']);
  });
});

describe('the toolbar', () => {
  const asked: number[] = [];

  async function withToolbar(): Promise<void> {
    await show();
    const toolbar = new Toolbar<Widget>();
    fillToolbar(toolbar, { panel, onRank: rank => asked.push(rank) });
    act(() => Widget.attach(toolbar, document.body));
    await settled();
  }

  test('has ranks and attempts to choose from where there are several', async () => {
    cluster.jobs = [jobView({ tasks: 3, attempts_made: 2 })];
    await withToolbar();
    const ranks = screen.getByLabelText('Rank');
    fireEvent.change(ranks, { target: { value: '2' } });
    expect(asked).toEqual([2]);
    const attempts = screen.getByLabelText('Attempt');
    fireEvent.change(attempts, { target: { value: '1' } });
    expect(streams.starts[1].query).toMatchObject({ only_attempt: '1' });
    fireEvent.change(attempts, { target: { value: '' } });
    expect(streams.starts[2].query).not.toHaveProperty('only_attempt');
  });

  test('has neither for one task at its first attempt', async () => {
    await withToolbar();
    expect(screen.queryByLabelText('Rank')).toBeNull();
    expect(screen.queryByLabelText('Attempt')).toBeNull();
  });

  test('shows whether the end is followed, and switches it', async () => {
    await withToolbar();
    const follow = button('Follow');
    expect(follow.getAttribute('aria-pressed')).toBe('true');
    fireEvent.click(follow);
    expect(terminal.isFollowing).toBe(false);
  });

  test('cancels the job', async () => {
    await withToolbar();
    fireEvent.click(button('Cancel job 1'));
    fireEvent.click(button('Yes'));
    expect(cluster.asked).toContainEqual(['cancel', 'job1']);
  });
});

test('nothing of it breaks a rule of accessibility', async () => {
  await show();
  await send(scene.begin(), scene.add('stdout', 'x'));
  await act(async () => panel.openSearch());
  MessageLoop.flush();
  const { violations } = await axe.run(panel.node, {
    rules: { 'color-contrast': { enabled: false }, region: { enabled: false } }
  });
  expect(violations.map(each => each.id)).toEqual([]);
});
