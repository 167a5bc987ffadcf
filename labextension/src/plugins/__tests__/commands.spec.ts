import { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, Notification } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';

import {
  FakeCell,
  FakeNotebook,
  FakeTracker
} from '../../commands/__tests__/notebooks';
import { FakeCluster, fakeCluster, jobView } from '../../model/testing';
import { GpuSettings } from '../../settings';
import { CommandIDs } from '../../tokens';
import { commands as plugin } from '../commands';

const mine = (number: number, state: string, more = {}) =>
  jobView({ number, state, ...more });

let cluster: FakeCluster;
let commands: CommandRegistry;
let clicked: HTMLElement | undefined;
let palette: string[];
let activated: string[];
let tracker: FakeTracker;

beforeEach(() => {
  commands = new CommandRegistry();
  clicked = undefined;
  palette = [];
  activated = [];
  tracker = new FakeTracker([
    new FakeNotebook('a.ipynb', [new FakeCell('c1', 'x')])
  ]);
  cluster = fakeCluster({
    jobs: [
      mine(1, 'succeeded'),
      mine(2, 'running'),
      mine(3, 'pending'),
      mine(4, 'running', { mine: false, can_control: false })
    ]
  });
  const app = {
    commands,
    contextMenuHitTest: (test: (node: HTMLElement) => boolean) =>
      clicked && test(clicked) ? clicked : undefined,
    serviceManager: { contents: { localPath: (path: string) => path } },
    shell: { activateById: (id: string) => activated.push(id) }
  };
  void plugin.activate(
    app as unknown as JupyterFrontEnd,
    cluster,
    null,
    { addItem: (item: { command: string }) => palette.push(item.command) },
    tracker,
    null,
    new GpuSettings()
  );
});

afterEach(() => jest.restoreAllMocks());

function row(job: string): void {
  clicked = document.createElement('div');
  clicked.dataset.jobId = job;
}

/** What a list to choose from offers; chooses the item at `at`, or none. */
function choosing(at: number | null): string[] {
  const offered: string[] = [];
  jest.spyOn(InputDialog, 'getItem').mockImplementation(async options => {
    offered.push(...options.items);
    return {
      button: (at === null
        ? Dialog.cancelButton()
        : Dialog.okButton()) as Dialog.IButton,
      isChecked: null,
      value: at === null ? null : options.items[at]
    };
  });
  return offered;
}

/** The dialog that a command opens, once it says `text`. */
async function dialog(text: string): Promise<HTMLElement> {
  for (;;) {
    const found = document.querySelector<HTMLElement>('.jp-Dialog');
    if (found?.textContent?.includes(text)) {
      return found;
    }
    await new Promise(done => window.setTimeout(done, 10));
  }
}

function press(box: HTMLElement, label: string): void {
  const buttons = [...box.querySelectorAll('button')];
  buttons.find(button => button.textContent === label)!.click();
}

test('every command has a label and a caption, and stands in the palette', () => {
  const ours = commands.listCommands();
  expect(ours.sort()).toEqual([...palette].sort());
  for (const id of ours) {
    expect(commands.label(id)).toBeTruthy();
    expect(commands.caption(id)).toBeTruthy();
  }
});

test('the panel is shown', async () => {
  await commands.execute(CommandIDs.showPanel);
  expect(activated).toEqual(['jp-gpucluster-sidebar']);
});

describe('from the palette', () => {
  test('my jobs that can be cancelled are offered, newest first', async () => {
    const offered = choosing(1);
    const cancelling = commands.execute(CommandIDs.cancelJob);
    const box = await dialog('Cancel job 2 train?');
    expect(offered).toEqual(['job 3 train · pending', 'job 2 train · running']);
    press(box, 'Cancel the job');
    await cancelling;
    expect(cluster.asked).toEqual([['cancel', 'job2']]);
  });

  test('jobs that have ended can be shared, after the others', async () => {
    const offered = choosing(null);
    await commands.execute(CommandIDs.shareJob);
    expect(offered).toEqual([
      'job 3 train · pending',
      'job 2 train · running',
      'job 1 train · succeeded'
    ]);
    expect(cluster.asked).toEqual([]);
  });

  test('jobs are asked for only as long as it takes to choose one', async () => {
    choosing(null);
    const before = cluster.interests.size;
    await commands.execute(CommandIDs.cancelJob);
    expect(cluster.interests.size).toBe(before);
  });

  test('without such a job that is said', async () => {
    cluster.jobs = [];
    const cancelling = commands.execute(CommandIDs.cancelJob);
    press(await dialog('There is no such job of yours.'), 'Ok');
    await cancelling;
  });

  test('while the cluster is away that is said', async () => {
    cluster.known = [];
    cluster.connection = {
      state: 'away',
      reason: 'It is away.',
      hint: 'Wait.'
    };
    const cancelling = commands.execute(CommandIDs.cancelJob);
    press(await dialog('It is away. Wait.'), 'Ok');
    await cancelling;
  });
});

describe('from a context menu', () => {
  const context = { context: true };

  test('the job is that of the element', async () => {
    row('job3');
    const cancelling = commands.execute(CommandIDs.cancelJob, context);
    press(await dialog('Cancel job 3 train?'), 'Keep it');
    await cancelling;
    expect(cluster.asked).toEqual([]);
  });

  test('what makes no sense for it is not enabled', () => {
    row('job1');
    expect(commands.isEnabled(CommandIDs.cancelJob, context)).toBe(false);
    expect(commands.isEnabled(CommandIDs.shareJob, context)).toBe(true);
    row('job4');
    expect(commands.isEnabled(CommandIDs.cancelJob, context)).toBe(false);
    row('job2');
    expect(commands.isEnabled(CommandIDs.cancelJob, context)).toBe(true);
    expect(commands.isEnabled(CommandIDs.goToCell, context)).toBe(false);
    row('not known yet');
    expect(commands.isEnabled(CommandIDs.cancelJob, context)).toBe(true);
  });

  test('what goes wrong is a notification', async () => {
    const warning = jest.spyOn(Notification, 'warning').mockReturnValue('');
    row('job2');
    await commands.execute(CommandIDs.goToCell, context);
    expect(warning.mock.calls[0][0]).toBe(
      'Job 2 does not come from a cell of a notebook.'
    );
  });
});

describe('of a job that is named', () => {
  test('what goes wrong is an error, for whoever named it', async () => {
    await expect(
      commands.execute(CommandIDs.goToCell, { job: 'job2' })
    ).rejects.toThrow('Job 2 does not come from a cell of a notebook.');
  });

  test('one that the page does not know is asked for', async () => {
    choosing(2);
    cluster.known = [];
    const sharing = commands.execute(CommandIDs.shareJob, { job: 'job9' });
    await new Promise(done => window.setTimeout(done, 0));
    expect([...cluster.interests]).toContainEqual({ jobs: ['job9'] });
    cluster.jobs = [mine(9, 'running')];
    cluster.emit();
    await sharing;
    expect(cluster.asked).toEqual([['share', 'job9', 'everyone']]);
  });

  test('one that is gone is said to be', async () => {
    cluster.gone = ['job9'];
    await expect(
      commands.execute(CommandIDs.shareJob, { job: 'job9' })
    ).rejects.toThrow('There is no such job any more.');
  });
});

describe('the active cell', () => {
  test('can be submitted where it is one of code in the notebook in view', () => {
    const { submitCell } = CommandIDs;
    const toolbar = { toolbar: true };
    expect(commands.isEnabled(submitCell)).toBe(true);
    tracker.notebooks[0].isVisible = false;
    expect(commands.isEnabled(submitCell)).toBe(false);
    tracker.notebooks[0].isVisible = true;
    tracker.notebooks[0].cells[0] = new FakeCell('c1', '# x', 'markdown');
    expect(commands.isEnabled(submitCell)).toBe(false);
    expect(commands.isVisible(submitCell, toolbar)).toBe(false);
    expect(commands.isVisible(submitCell)).toBe(true);
  });

  test('what hinders it is a notification', async () => {
    const warning = jest.spyOn(Notification, 'warning').mockReturnValue('');
    tracker.notebooks[0].cells[0].source = '';
    await commands.execute(CommandIDs.submitCell);
    expect(warning.mock.calls[0][0]).toBe('Choose a cell with code.');
  });

  test('its button names the magic as it is written', () => {
    expect(commands.caption(CommandIDs.submitCell)).toContain(
      '%%submit on top'
    );
  });
});

test('without notebooks there is no command on cells', () => {
  const others = new CommandRegistry();
  const app = {
    commands: others,
    serviceManager: { contents: {} },
    shell: { activateById: (id: string) => new Widget() }
  };
  void plugin.activate(
    app as unknown as JupyterFrontEnd,
    cluster,
    null,
    null,
    null,
    null,
    null
  );
  expect(others.hasCommand(CommandIDs.submitCell)).toBe(false);
  expect(others.hasCommand(CommandIDs.goToCell)).toBe(true);
});
