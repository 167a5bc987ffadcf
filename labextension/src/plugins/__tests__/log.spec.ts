import '../../widgets/__tests__/noCanvas';

import { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { ServerConnection } from '@jupyterlab/services';
import { CommandRegistry } from '@lumino/commands';
import { TabPanel, Widget } from '@lumino/widgets';

import { IStreams } from '../../api/streams';
import { FakeCluster, fakeCluster, jobView } from '../../model/testing';
import { CommandIDs } from '../../tokens';
import { LogPanel } from '../../widgets/logPanel';
import { LogTerminal } from '../../widgets/logTerminal';
import { log } from '../log';

type LogWidget = MainAreaWidget<LogPanel>;

interface IRestoring {
  command: string;
  args(widget: LogWidget): unknown;
  name(widget: LogWidget): string;
}

let commands: CommandRegistry;
let cluster: FakeCluster;
let added: [LogWidget, string][];
let activated: string[];
let restoring: IRestoring;
let tabs: TabPanel;

function activate(hasMainArea = true): void {
  commands = new CommandRegistry();
  added = [];
  activated = [];
  tabs = new TabPanel();
  const app = {
    commands,
    contextMenuHitTest: () => undefined,
    serviceManager: { serverSettings: ServerConnection.makeSettings() },
    shell: {
      add: (widget: LogWidget, area: string) => {
        added.push([widget, area]);
        if (area === 'down') {
          tabs.addWidget(widget);
        }
      },
      activateById: (id: string) => activated.push(id)
    }
  };
  const restorer = {
    restore: async (_: unknown, options: IRestoring) => {
      restoring = options;
    }
  };
  void log.activate(
    app as unknown as JupyterFrontEnd,
    cluster,
    { open: () => new Widget() } as unknown as IStreams,
    null,
    hasMainArea ? ({} as ILabShell) : null,
    restorer,
    null,
    null
  );
}

const open = (args: { job: string; rank?: number; attempt?: number }) =>
  commands.execute(CommandIDs.openLog, args) as Promise<LogWidget>;

beforeEach(() => {
  jest.spyOn(LogTerminal, 'open').mockReturnValue(new Promise(() => undefined));
  cluster = fakeCluster({
    jobs: [jobView({ number: 12, id: 'abc', tasks: 3 })]
  });
  activate();
});

afterEach(() => {
  added.forEach(([widget]) => widget.dispose());
  jest.restoreAllMocks();
});

test('a log opens in the main area under the name of its job', async () => {
  const widget = await open({ job: 'abc' });
  expect(added).toEqual([[widget, 'main']]);
  expect(activated).toEqual(['jp-gpucluster-log-abc-0']);
  expect(widget.title.label).toBe('Log 12 train · rank 0');
  expect(widget.title.caption).toBe('Log of job 12 train · rank 0');
});

test('opened twice it is the same one, also when both are asked for at once', async () => {
  const [one, two] = await Promise.all([
    open({ job: 'abc' }),
    open({ job: 'abc' })
  ]);
  const three = await open({ job: 'abc' });
  expect(added).toHaveLength(1);
  expect([two, three]).toEqual([one, one]);
  expect(activated).toHaveLength(3);
});

test('each rank has one of its own', async () => {
  const one = await open({ job: 'abc', rank: 0 });
  const two = await open({ job: 'abc', rank: 2 });
  expect([one.id, two.id]).toEqual([
    'jp-gpucluster-log-abc-0',
    'jp-gpucluster-log-abc-2'
  ]);
});

test('an attempt that is asked for is shown in the log that is open', async () => {
  const widget = await open({ job: 'abc' });
  await open({ job: 'abc', attempt: 2 });
  expect(widget.content.log.attempt).toBe(2);
  await open({ job: 'abc' });
  expect(widget.content.log.attempt).toBe(2);
});

test('it is restored by its job, rank and attempt alone', async () => {
  const widget = await open({ job: 'abc', rank: 1 });
  expect(restoring.command).toBe(CommandIDs.openLog);
  expect(restoring.name(widget)).toBe('abc:1');
  expect(restoring.args(widget)).toEqual({
    job: 'abc',
    rank: 1,
    attempt: null
  });
});

test('one that is closed opens anew', async () => {
  const widget = await open({ job: 'abc' });
  widget.dispose();
  expect(await open({ job: 'abc' })).not.toBe(widget);
});

test('where there is no main area it opens below, and its tab comes to the front', async () => {
  activate(false);
  const one = await open({ job: 'abc' });
  await open({ job: 'abc', rank: 1 });
  await open({ job: 'abc' });
  expect(added.map(([, area]) => area)).toEqual(['down', 'down']);
  expect(tabs.currentWidget).toBe(one);
});
