import { CodeCell } from '@jupyterlab/cells';
import { OutputAreaModel } from '@jupyterlab/outputarea';
import { PromiseDelegate } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { CellOp, JobView } from '../../api/schemas';
import { IChannelHandler, IStreams } from '../../api/streams';
import { fakeCluster, FakeCluster, jobView } from '../../model/testing';
import { CARD_MIME } from '../card';
import { NotebookKeeper } from '../keeper';
import { followNewJobs } from '../newJobs';
import { Turns } from '../turns';

/** A cell with the card of a job of which not all was drawn. */
function cell(id: string, trusted = true, jobId = 'job1'): any {
  const model = {
    id,
    set executionState(_: string) {
      panel.contentChanged.emit();
    },
    trusted,
    isDisposed: false,
    outputs: new OutputAreaModel({ trusted }),
    sharedModel: { source: '%%submit\nfit(net)' }
  };
  const drawing = { fills_cell: true, complete: false };
  const card = { version: 1, job_id: jobId, number: 1, state: 'running' };
  model.outputs.add({
    output_type: 'display_data',
    data: { [CARD_MIME]: { ...card, drawing } as any },
    metadata: {}
  });
  return Object.create(CodeCell.prototype, {
    model: { value: model },
    outputArea: { value: { future: null } },
    isDisposed: { value: false, writable: true }
  });
}

/** Its kernel draws it into this page; gives how that ends. */
function run(running: any): PromiseDelegate<void> {
  const end = new PromiseDelegate<void>();
  running.outputArea.future = { isDisposed: false, done: end.promise };
  return end;
}

class FakePanel {
  constructor(readonly widgets: any[]) {}

  readonly cellsChanged = new Signal<this, void>(this);
  readonly contentChanged = new Signal<this, void>(this);
  readonly disposed = new Signal<this, void>(this);
  saves = 0;
  readonly revealed = Promise.resolve();
  readonly context = {
    ready: Promise.resolve(),
    localPath: 'work/a.ipynb',
    path: 'work/a.ipynb',
    isDisposed: false,
    model: { dirty: true, stateChanged: new Signal<object, any>({}) },
    save: async () => {
      this.saves++;
      this.becomeClean();
    },
    saveState: new Signal<object, string>({}),
    contentsModel: { last_modified: '2026-03-01T10:00:00Z', writable: true }
  };
  readonly content = {
    model: {
      cells: { changed: this.cellsChanged },
      contentChanged: this.contentChanged
    },
    widgets: this.widgets
  };

  becomeClean(): void {
    this.context.model.dirty = false;
    this.context.model.stateChanged.emit({ name: 'dirty' });
  }

  /** Other cells, or the same ones in another order. */
  change(...widgets: any[]): void {
    this.widgets.splice(0, this.widgets.length, ...widgets);
    this.cellsChanged.emit();
  }
}

let claims: string[];
let panel: FakePanel;
let cluster: FakeCluster;
let keeper: NotebookKeeper;

const passed = () => new Promise(done => setTimeout(done, 0));

let grants: (() => void)[];
let channel: IChannelHandler<CellOp> | null;

async function keep(cells: any[], jobs: JobView[] = []): Promise<void> {
  panel = new FakePanel(cells);
  const streams = {
    claim: (key: string, role: string, onChange: (told: any) => void) => {
      claims.push(`${role} ${key}`);
      const claim = {
        granted: false,
        dispose: () => claims.splice(claims.indexOf(`${role} ${key}`), 1)
      };
      grants.push(() => {
        claim.granted = true;
        onChange({ granted: true });
      });
      return claim;
    },
    open: (handler: IChannelHandler<CellOp>) => {
      channel = handler;
      return { isDisposed: false, dispose: () => undefined };
    }
  };
  keeper = new NotebookKeeper({
    panel: panel as any,
    streams: streams as unknown as IStreams,
    turns: new Turns(9),
    contents: {
      get: async () => panel.context.contentsModel
    } as any,
    findJobs: async (ids, isHere) =>
      jobs.filter(
        job => ids.includes(job.cell_id!) && isHere(job.notebook_path)
      ),
    followNewJobs: onNew => followNewJobs(cluster, onNew),
    savesFilled: () => true
  });
  await passed();
}

beforeEach(() => {
  claims = [];
  cluster = fakeCluster();
  grants = [];
  channel = null;
});

afterEach(() => keeper.dispose());

describe('a cell that its kernel draws', () => {
  it('is claimed for the kernel, and given up with the notebook', async () => {
    const running = cell('c1');
    run(running);
    await keep([running]);
    expect(claims).toEqual(['kernel work/a.ipynb#c1#job1']);
    keeper.dispose();
    expect(claims).toEqual([]);
  });

  it('is given up when it is deleted', async () => {
    const running = cell('c1');
    run(running);
    await keep([running]);
    panel.change();
    await passed();
    expect(claims).toEqual([]);
  });

  it('is drawn from the log when it was moved, which takes it from its kernel', async () => {
    const running = cell('c1');
    run(running);
    await keep([running, cell('c2', true, 'job2')]);
    panel.change(panel.widgets[1], cell('c1'));
    await passed();
    expect(claims.sort()).toEqual([
      'log work/a.ipynb#c1#job1',
      'log work/a.ipynb#c2#job2'
    ]);
  });
});

describe('a notebook of which cells were filled', () => {
  /** Begins to draw each cell; gives what ends it. */
  const begin = async (...ids: string[]): Promise<(() => Promise<void>)[]> => {
    await keep(ids.map(id => cell(id, true, id)));
    panel.becomeClean();
    const ends = [];
    for (const grant of grants) {
      grant();
      await passed();
      const { start, onItems } = channel!;
      start();
      panel.context.model.dirty = true;
      ends.push(async () => {
        void onItems([{ op: 'card' }, { op: 'done' }]);
        panel.context.model.dirty = true;
        await passed();
      });
    }
    return ends;
  };

  it('is saved', async () => {
    const [end] = await begin('c1');
    await end();
    expect(panel.saves).toBe(1);
  });

  it('is saved again for one that was drawn beside another', async () => {
    const [endOne, endOther] = await begin('c1', 'c2');
    await endOne();
    await endOther();
    expect(panel.saves).toBe(2);
  });

  it('is left to whoever changed something else in it meanwhile', async () => {
    const [end] = await begin('c1');
    panel.contentChanged.emit();
    await end();
    expect(panel.saves).toBe(0);
  });

  it('is left to whoever has changed something in it before', async () => {
    await keep([cell('c1')]);
    panel.becomeClean();
    panel.contentChanged.emit();
    grants[0]();
    await passed();
    channel!.start();
    void channel!.onItems([{ op: 'card' }, { op: 'done' }]);
    await passed();
    expect(panel.saves).toBe(0);
  });
});

describe('a card that somebody may have put there to have the output of a job', () => {
  const own = { id: 'job1', cell_id: 'c1', state: 'running', ended_us: null };

  it('is not filled', async () => {
    await keep([cell('c1', false)]);
    expect(claims).toEqual([]);
  });

  it('is filled where the cluster knows that this cell submitted the job', async () => {
    const path = '/home/ada/work/a.ipynb';
    await keep([cell('c1', false)], [jobView({ ...own, notebook_path: path })]);
    expect(claims).toEqual(['log work/a.ipynb#c1#job1']);
  });

  it.each([
    ['another job', { id: 'job2' }],
    ['another notebook', { notebook_path: '/home/ada/other/a.ipynb' }],
    ['another cell', { cell_id: 'c2' }]
  ])('is not filled for what %s submitted', async (_, other) => {
    const path = '/home/ada/work/a.ipynb';
    const ended = { state: 'succeeded', ended_us: 1 }; // before the file was saved
    const job = jobView({ ...own, ...ended, notebook_path: path, ...other });
    await keep([cell('c1', false), cell('c2', false, 'job9')], [job]);
    expect(claims).toEqual([]);
  });
});

describe('a job that another page, or the queue of a kernel, submits for a cell', () => {
  const empty = (id: string) => {
    const made = cell(id);
    made.model.outputs.clear();
    return made;
  };
  const submitted = jobView({
    id: 'job2',
    number: 2,
    cell_id: 'c2',
    fills_cell: true,
    mine: true,
    ended_us: null,
    notebook_path: '/home/ada/work/a.ipynb'
  });
  const submit = async (job: Partial<JobView> = {}) => {
    cluster.jobs = [jobView({ ...submitted, ...job })];
    cluster.emit();
    await jest.advanceTimersByTimeAsync(0);
  };
  const keepWithFakeTime = async (...cells: any[]) => {
    await keep(cells);
    jest.useFakeTimers();
  };
  afterEach(() => jest.useRealTimers());

  it('is drawn in the cell, once the page into which a kernel draws it could say so', async () => {
    await keepWithFakeTime(empty('c1'), empty('c2'));
    await submit();
    expect(claims).toEqual([]);
    await jest.advanceTimersByTimeAsync(60_000);
    expect(claims).toEqual(['log work/a.ipynb#c2#job2']);
  });

  it('is left to the kernel that draws it here', async () => {
    const running = empty('c2');
    await keepWithFakeTime(running);
    const end = run(running);
    await submit();
    end.resolve();
    await jest.advanceTimersByTimeAsync(60_000);
    expect(claims).toEqual([]);
  });

  it('is left alone in a cell that shows a later one', async () => {
    await keepWithFakeTime(cell('c2', true, 'job1'));
    await submit({ number: 0 });
    await jest.advanceTimersByTimeAsync(60_000);
    expect(claims).toEqual(['log work/a.ipynb#c2#job1']);
  });

  it.each([
    ['a copy of the notebook', { notebook_path: '/home/ada/b.ipynb' }],
    ['somebody else', { mine: false }]
  ])('is none of this notebook when it is of %s', async (_, other) => {
    await keepWithFakeTime(empty('c2'));
    await submit(other);
    await jest.advanceTimersByTimeAsync(60_000);
    expect(claims).toEqual([]);
  });

  it('is not asked for any more when the notebook is closed', async () => {
    await keepWithFakeTime(empty('c2'));
    expect([...cluster.interests]).toEqual([{ topics: ['mine'] }]);
    keeper.dispose();
    expect(cluster.interests.size).toBe(0);
  });
});

it('does not bring back what somebody cleared before it was drawn on', async () => {
  const cleared = cell('c1');
  const job = jobView({
    id: 'job1',
    number: 1,
    cell_id: 'c1',
    fills_cell: true,
    ended_us: null,
    notebook_path: 'work/a.ipynb'
  });
  await keep([cleared], [job]);
  expect(claims).toEqual(['log work/a.ipynb#c1#job1']);
  cleared.model.outputs.clear();
  await passed();
  expect(claims).toEqual([]);
});
