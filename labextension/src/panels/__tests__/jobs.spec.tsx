import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { act, fireEvent, render, screen, within } from '@testing-library/react';
import * as React from 'react';

import { ApiError } from '../../api/errors';
import { JobView } from '../../api/schemas';
import {
  FakeCluster,
  fakeCluster,
  jobView,
  NOW_US,
  progress
} from '../../model/testing';
import { ViewState } from '../../model/viewState';
import { CommandIDs } from '../../tokens';
import { ERROR_MS } from '../jobActions';
import { Jobs } from '../jobs';

const trans = nullTranslator.load('jupyter_gpucluster');
const ROW_HEIGHT = 50;
const GRID_HEIGHT = 600;

// jsdom lays nothing out: the list gets a height, and each row another.
beforeAll(() => {
  Object.defineProperties(HTMLElement.prototype, {
    clientHeight: { configurable: true, get: () => GRID_HEIGHT },
    offsetHeight: { configurable: true, get: () => ROW_HEIGHT },
    clientWidth: { configurable: true, get: () => 250 }
  });
  Element.prototype.scrollTo = function (this: Element, to: unknown) {
    this.scrollTop = (to as ScrollToOptions).top ?? 0;
  } as Element['scrollTo'];
});

beforeEach(() => {
  jest.useFakeTimers({ now: NOW_US / 1000 });
});

afterEach(() => {
  jest.useRealTimers();
});

interface ISet {
  cluster: FakeCluster;
  view: ViewState;
  /** What was executed: [command, args]. */
  executed: [string, unknown][];
  unmount: () => void;
}

function draw(
  jobs: JobView[],
  given: { view?: ViewState; cluster?: FakeCluster; logFails?: Error } = {}
): ISet {
  const cluster = given.cluster ?? fakeCluster({ jobs });
  const view = given.view ?? new ViewState();
  const commands = new CommandRegistry();
  const executed: [string, unknown][] = [];
  for (const id of [CommandIDs.openLog, CommandIDs.goToCell]) {
    commands.addCommand(id, {
      execute: args => {
        if (given.logFails) {
          throw given.logFails;
        }
        executed.push([id, args]);
      }
    });
  }
  const { unmount } = render(
    <Jobs cluster={cluster} commands={commands} view={view} trans={trans} />
  );
  return { cluster, view, executed, unmount };
}

function all(): ViewState {
  const view = new ViewState();
  view.set({ scope: 'all' });
  return view;
}

function row(number: number): HTMLElement {
  return screen.getByRole('row', { name: new RegExp(`^job ${number} `) });
}

/** Numbers of the jobs that are listed, in their order. */
function numbers(): number[] {
  return screen
    .getAllByRole('row')
    .map(one => /^job (\d+) /.exec(one.getAttribute('aria-label') ?? '')?.[1])
    .filter(one => one !== undefined)
    .map(Number);
}

function press(key: string): void {
  fireEvent.keyDown(document.activeElement ?? document.body, { key });
}

async function settle(): Promise<void> {
  await act(async () => {
    await Promise.resolve();
  });
}

function tell(cluster: FakeCluster, jobs: JobView[]): void {
  cluster.jobs = jobs;
  act(() => cluster.emit());
}

/** The text as it is read: that facts are not broken over lines says nothing. */
function said(element: HTMLElement): string {
  return (element.textContent ?? '').replace(/\u00a0/g, ' ');
}

describe('the list of jobs', () => {
  it('has groups, and in each the newest first', () => {
    draw([
      jobView({ number: 4, state: 'succeeded' }),
      jobView({ number: 3, state: 'pending' }),
      jobView({ number: 2, state: 'running' }),
      jobView({ number: 1, state: 'running' })
    ]);
    expect(
      screen
        .getAllByRole('button', { expanded: true })
        .map(one => one.textContent)
    ).toEqual(['Running2', 'Waiting1', 'Ended1']);
    expect(numbers()).toEqual([2, 1, 3, 4]);
    expect(screen.getByRole('grid').getAttribute('aria-rowcount')).toBe('7');
  });

  it('tells how far a running job is, how fast it goes and how long it takes', () => {
    const reports = [10, 20, 30].map((step, at) =>
      progress({
        step,
        time_us: NOW_US - (2 - at) * 1e6,
        metrics: { loss: 1 / step }
      })
    );
    const cluster = fakeCluster({
      jobs: [jobView({ number: 12, progress: reports[2], gpus: 4 })],
      reports: { job12: reports }
    });
    draw([], { cluster });
    const shown = row(12);
    const bar = within(shown).getByRole('progressbar');
    expect(bar.getAttribute('aria-valuenow')).toBe('30');
    expect(shown.textContent).toContain('4 GPUs');
    expect(shown.textContent).toContain('30%');
    expect(said(shown)).toContain('step 30/100 · 10 steps/s · 7.0 s left');
    expect(shown.textContent).toContain('loss 0.03333');
    expect(
      within(shown).getByRole('img', { name: /^loss: first 0.1, last 0.0333/ })
    ).toBeTruthy();
  });

  it('counts how long a job runs that reports nothing', () => {
    draw([jobView({ number: 12, started_us: NOW_US - 65e6 })]);
    expect(said(row(12))).toContain('1 min 05 s so far');
    act(() => {
      jest.advanceTimersByTime(2000);
    });
    expect(said(row(12))).toContain('1 min 07 s so far');
  });

  it('tells the place of a waiting job, and why it waits', () => {
    draw([
      jobView({
        number: 12,
        state: 'pending',
        queue: 'vision',
        position: 2,
        waits: 'Needs 4 GPUs; 2 are free.'
      })
    ]);
    expect(row(12).textContent).toContain(
      '2nd in queue vision: Needs 4 GPUs; 2 are free.'
    );
  });

  it('tells how a job ended, and why it failed', () => {
    draw([
      jobView({
        number: 12,
        state: 'failed',
        started_us: NOW_US - 20e6,
        ended_us: NOW_US - 8e6,
        reason: 'ValueError: no data'
      })
    ]);
    expect(row(12).textContent).toContain('failed after 12 s');
    expect(row(12).textContent).toContain('ValueError: no data');
  });

  it('names the owners where all jobs are listed', () => {
    draw([jobView({ number: 12, mine: false, owner_name: 'grace' })], {
      view: all()
    });
    expect(row(12).textContent).toContain('grace');
  });

  it('lists all jobs, or mine', () => {
    const { cluster } = draw([
      jobView({ number: 2, mine: false }),
      jobView({ number: 1 })
    ]);
    expect(numbers()).toEqual([1]);
    fireEvent.click(screen.getByRole('button', { name: 'All' }));
    expect(numbers()).toEqual([2, 1]);
    expect([...cluster.interests][0].topics).toEqual(['jobs']);
    fireEvent.click(screen.getByRole('button', { name: 'Mine' }));
    expect([...cluster.interests][0].topics).toEqual(['mine']);
  });

  it('is filtered', () => {
    draw([
      jobView({ number: 2, name: 'eval' }),
      jobView({ number: 1, name: 'train' })
    ]);
    const box = screen.getByRole('searchbox', { name: 'Filter jobs' });
    fireEvent.change(box, { target: { value: 'eval' } });
    expect(numbers()).toEqual([2]);
    fireEvent.change(box, { target: { value: 'nothing' } });
    expect(screen.getByText('No job of yours matches “nothing”.')).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'Clear the filter' }));
    expect(numbers()).toEqual([2, 1]);
  });

  it('closes a group', () => {
    draw([jobView({ number: 2 }), jobView({ number: 1, state: 'failed' })]);
    fireEvent.click(screen.getByRole('button', { name: /^Running/ }));
    expect(numbers()).toEqual([1]);
  });

  it('helps who has no jobs', () => {
    draw([]);
    expect(screen.getByText('You have no jobs yet.')).toBeTruthy();
    expect(screen.getByText('%%submit --gpus 1')).toBeTruthy();
    expect(
      screen.getByRole('button', { name: 'Copy %%submit --gpus 1' })
    ).toBeTruthy();
  });

  it('is no empty list before it is known', () => {
    draw([], { cluster: fakeCluster({ known: [] }) });
    expect(screen.queryByText('You have no jobs yet.')).toBeNull();
    expect(screen.getByText('Connecting to the cluster…')).toBeTruthy();
  });

  it('says how many older jobs there are', () => {
    draw([], { cluster: fakeCluster({ jobs: [jobView()], jobsLeftOut: 41 }) });
    expect(screen.getByText(/^41 older jobs are not listed/)).toBeTruthy();
  });

  it('draws of 5,000 jobs those in view, and asks for them alone', () => {
    const jobs = Array.from({ length: 5000 }, (_, at) =>
      jobView({ number: 5000 - at, state: 'pending' })
    );
    const { cluster, unmount } = draw(jobs);
    expect(numbers().length).toBeLessThan(40);
    expect(numbers()[0]).toBe(5000);
    act(() => {
      jest.advanceTimersByTime(1000);
    });
    const [interest] = cluster.interests;
    expect(interest.topics).toEqual(['mine']);
    expect([...(interest.jobs ?? [])].sort()).toEqual(
      numbers()
        .map(number => `job${number}`)
        .sort()
    );
    unmount();
    expect(cluster.interests.size).toBe(0);
  });
});

describe('the course of a metric', () => {
  it('begins where the job began: earlier steps of the running jobs in view are loaded', () => {
    const { cluster } = draw([
      jobView({ number: 4, state: 'running', progress: progress() }),
      jobView({ number: 3, state: 'running' }),
      jobView({ number: 2, state: 'succeeded', progress: progress() }),
      jobView({ number: 1, progress: progress(), can_read: false })
    ]);
    act(() => {
      jest.advanceTimersByTime(1000);
    });
    expect(cluster.asked).toEqual([['loadSteps', 'job4']]);
  });
});

describe('cancelling from the list', () => {
  it('asks in the row, and shows at once that the job is being stopped', async () => {
    const { cluster } = draw([jobView({ number: 12 })]);
    cluster.answers.cancel = () => new Promise(() => undefined);
    fireEvent.click(screen.getByRole('button', { name: 'Cancel job 12' }));
    const question = screen.getByRole('group', { name: 'Cancel job 12?' });
    expect(cluster.asked).toEqual([]);
    fireEvent.click(within(question).getByRole('button', { name: 'Yes' }));
    expect(cluster.asked).toEqual([['cancel', 'job12']]);
    expect(
      screen.getByRole('row', { name: 'job 12 train, stopping' })
    ).toBeTruthy();
    expect(row(12).textContent).toContain('stopping');
  });

  it('can be thought better of', () => {
    const { cluster } = draw([jobView({ number: 12 })]);
    act(() => row(12).focus());
    press('Delete');
    expect(document.activeElement?.textContent).toBe('No');
    press('Escape');
    expect(screen.queryByRole('group', { name: 'Cancel job 12?' })).toBeNull();
    expect(document.activeElement).toBe(row(12));
    expect(cluster.asked).toEqual([]);
  });

  it('shows in the row what went wrong, and for a while only', async () => {
    const { cluster } = draw([jobView({ number: 12 })]);
    cluster.answers.cancel = () => {
      throw new ApiError(503, {
        code: 'unavailable',
        reason: 'The scheduler is away.',
        hint: 'Try again.'
      });
    };
    fireEvent.click(screen.getByRole('button', { name: 'Cancel job 12' }));
    fireEvent.click(screen.getByRole('button', { name: 'Yes' }));
    await settle();
    expect(within(row(12)).getByRole('alert').textContent).toBe(
      'The scheduler is away. Try again.'
    );
    expect(row(12).getAttribute('aria-label')).toBe('job 12 train, running');
    act(() => {
      jest.advanceTimersByTime(ERROR_MS);
    });
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it("is refused with its reason for a stranger's job", () => {
    const { cluster } = draw(
      [jobView({ number: 12, mine: false, can_control: false })],
      { view: all() }
    );
    const button = screen.getByRole('button', { name: /^Cancel job 12/ });
    expect(button.getAttribute('aria-disabled')).toBe('true');
    fireEvent.click(button);
    expect(within(row(12)).getByRole('alert').textContent).toBe(
      'Only its owner and administrators may cancel it.'
    );
    fireEvent.click(screen.getByRole('button', { name: 'Hide this error' }));
    expect(screen.queryByRole('alert')).toBeNull();
    expect(cluster.asked).toEqual([]);
  });

  it('a double click on "No" opens no log, and asks nothing anew', async () => {
    const { executed } = draw([jobView({ number: 12 })]);
    fireEvent.click(screen.getByRole('button', { name: 'Cancel job 12' }));
    const no = screen.getByRole('button', { name: 'No' });
    fireEvent.mouseDown(no, { detail: 1 });
    fireEvent.click(no, { detail: 1 });
    // The question is gone, so the second click falls on what stands there now.
    const cancel = screen.getByRole('button', { name: 'Cancel job 12' });
    fireEvent.mouseDown(cancel, { detail: 2 });
    fireEvent.click(cancel, { detail: 2 });
    fireEvent.doubleClick(row(12), { detail: 2 });
    await settle();
    expect(executed).toEqual([]);
    expect(screen.queryByRole('group', { name: 'Cancel job 12?' })).toBeNull();
  });

  it('a double click on the button that asks does not say yes as well', () => {
    const { cluster, executed } = draw([jobView({ number: 12 })]);
    const cancel = screen.getByRole('button', { name: 'Cancel job 12' });
    fireEvent.mouseDown(cancel, { detail: 1 });
    fireEvent.click(cancel, { detail: 1 });
    const yes = screen.getByRole('button', { name: 'Yes' });
    fireEvent.mouseDown(yes, { detail: 2 });
    fireEvent.click(yes, { detail: 2 });
    fireEvent.doubleClick(yes, { detail: 2 });
    expect(cluster.asked).toEqual([]);
    expect(executed).toEqual([]);
    fireEvent.click(yes, { detail: 1 });
    expect(cluster.asked).toEqual([['cancel', 'job12']]);
  });

  it('is not offered for a job that has ended', () => {
    draw([jobView({ number: 12, state: 'succeeded' })]);
    expect(screen.queryByRole('button', { name: /^Cancel/ })).toBeNull();
  });
});

describe('other actions', () => {
  it('open the log, and go to the cell', async () => {
    const { executed } = draw([
      jobView({ number: 12, notebook_path: 'a.ipynb', cell_id: 'c1' })
    ]);
    fireEvent.click(screen.getByRole('button', { name: 'Log of job 12' }));
    fireEvent.click(
      screen.getByRole('button', { name: 'Go to the cell of job 12' })
    );
    await settle();
    expect(executed).toEqual([
      [CommandIDs.openLog, { job: 'job12' }],
      [CommandIDs.goToCell, { job: 'job12' }]
    ]);
  });

  it('a double click on the row opens the log', async () => {
    const { executed } = draw([jobView({ number: 12 })]);
    fireEvent.mouseDown(row(12), { detail: 1 });
    fireEvent.mouseDown(row(12), { detail: 2 });
    fireEvent.doubleClick(row(12), { detail: 2 });
    await settle();
    expect(executed).toEqual([[CommandIDs.openLog, { job: 'job12' }]]);
  });

  it('offer no cell where none is known', () => {
    draw([jobView({ number: 12 })]);
    expect(screen.queryByRole('button', { name: /cell/ })).toBeNull();
  });

  it('tell in the row when they fail', async () => {
    draw([jobView({ number: 12 })], { logFails: new Error('no such log') });
    fireEvent.click(screen.getByRole('button', { name: 'Log of job 12' }));
    await settle();
    expect(within(row(12)).getByRole('alert').textContent).toBe('no such log');
  });

  it('show details on demand', () => {
    draw([
      jobView({ number: 12, progress: progress({ metrics: { lr: 0.1 } }) })
    ]);
    expect(row(12).textContent).not.toContain('submitted');
    fireEvent.click(screen.getByRole('button', { name: 'Details of job 12' }));
    expect(row(12).textContent).toContain('submitted');
    expect(row(12).textContent).toContain('lr 0.1');
  });
});

describe('the keyboard', () => {
  const JOBS = [3, 2, 1].map(number => jobView({ number }));

  it('moves among the rows', () => {
    draw(JOBS);
    act(() => row(3).focus());
    press('ArrowDown');
    expect(document.activeElement).toBe(row(2));
    press('End');
    expect(document.activeElement).toBe(row(1));
    press('ArrowUp');
    expect(document.activeElement).toBe(row(2));
    press('Home');
    expect(document.activeElement?.textContent).toContain('Running');
  });

  it('reaches the buttons of a row, and leaves them', () => {
    draw(JOBS);
    act(() => row(2).focus());
    press('ArrowRight');
    expect(document.activeElement).toBe(
      screen.getByRole('button', { name: 'Details of job 2' })
    );
    press('ArrowLeft');
    expect(document.activeElement).toBe(row(2));
    press('ArrowRight');
    press('ArrowDown');
    expect(document.activeElement).toBe(row(1));
  });

  it('opens the log with Enter and details with Space', async () => {
    const { executed } = draw(JOBS);
    act(() => row(2).focus());
    press('Enter');
    await settle();
    expect(executed).toEqual([[CommandIDs.openLog, { job: 'job2' }]]);
    press(' ');
    expect(row(2).textContent).toContain('submitted');
  });

  it('closes a group from its heading', () => {
    draw(JOBS);
    act(() => row(3).focus());
    press('ArrowUp');
    press('Enter');
    expect(screen.getByRole('button', { expanded: false }).textContent).toBe(
      'Running3'
    );
  });

  it('stays with its job when others come, and when it changes groups', () => {
    const { cluster } = draw(JOBS);
    act(() => row(2).focus());
    tell(cluster, [jobView({ number: 4 }), ...JOBS]);
    expect(document.activeElement).toBe(row(2));
    tell(
      cluster,
      JOBS.map(job => (job.number === 2 ? { ...job, state: 'failed' } : job))
    );
    expect(numbers()).toEqual([3, 1, 2]);
    expect(document.activeElement).toBe(row(2));
  });

  it('goes on at the same place when its job is gone', () => {
    const { cluster } = draw(JOBS);
    act(() => row(2).focus());
    tell(
      cluster,
      JOBS.filter(job => job.number !== 2)
    );
    expect(document.activeElement).toBe(row(1));
  });

  it('keeps the focus however far the list is scrolled', () => {
    draw(
      Array.from({ length: 1000 }, (_, at) => jobView({ number: 1000 - at }))
    );
    act(() => row(999).focus());
    const grid = screen.getByRole('grid');
    act(() => {
      grid.scrollTop = 20_000;
      fireEvent.scroll(grid);
    });
    expect(numbers()[1]).toBeLessThan(900);
    expect(document.activeElement).toBe(row(999));
  });

  it('has one row for the Tab key', () => {
    draw(JOBS);
    expect(
      screen.getAllByRole('row').filter(one => one.tabIndex === 0)
    ).toEqual([row(3)]);
  });
});

describe('what is under the mouse', () => {
  /** Where the row is in the window onto the list. */
  function place(number: number): number {
    const start = /translateY\((.+)px\)/.exec(row(number).style.transform);
    return Number(start?.[1]) - screen.getByRole('grid').scrollTop;
  }

  it('stays there when rows come above it, or go', () => {
    const jobs = Array.from({ length: 30 }, (_, at) =>
      jobView({ number: 30 - at })
    );
    const { cluster } = draw(jobs);
    const before = place(28);
    fireEvent.mouseEnter(row(28));
    tell(cluster, [jobView({ number: 32 }), jobView({ number: 31 }), ...jobs]);
    expect(numbers()).toContain(32);
    expect(place(28)).toBe(before);
    tell(cluster, [jobView({ number: 31 }), ...jobs]);
    expect(place(28)).toBe(before);
  });
});

describe('announcements', () => {
  function said(): string {
    return screen
      .getAllByRole('status')
      .map(one => one.textContent)
      .join('');
  }

  it('tell changes of my jobs, at most once a second', () => {
    const { cluster } = draw([
      jobView({ number: 2, state: 'pending' }),
      jobView({ number: 1, state: 'pending' })
    ]);
    expect(said()).toBe('');
    tell(cluster, [
      jobView({ number: 2, state: 'pending' }),
      jobView({ number: 1, state: 'running' })
    ]);
    expect(said()).toBe('job 1 train: running');
    tell(cluster, [
      jobView({ number: 2, state: 'running' }),
      jobView({ number: 1, state: 'running' })
    ]);
    expect(said()).toBe('job 1 train: running');
    act(() => {
      jest.advanceTimersByTime(1000);
    });
    expect(said()).toBe('job 2 train: running');
  });
});
