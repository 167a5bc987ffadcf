import { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';

import {
  FakeCell,
  FakeNotebook,
  FakeTracker
} from '../../commands/__tests__/notebooks';
import { FakeCluster, fakeCluster, jobView } from '../../model/testing';
import { GpuSettings } from '../../settings';
import { CommandIDs } from '../../tokens';
import { notify } from '../notify';

type Told = Parameters<typeof Notification.emit>;

let cluster: FakeCluster;
let settings: GpuSettings;
let told: Told[];
let done: unknown[];
let tracker: FakeTracker;

beforeEach(() => {
  told = [];
  done = [];
  jest.spyOn(Notification, 'emit').mockImplementation((...args) => {
    told.push(args as Told);
    return '';
  });
  cluster = fakeCluster();
  settings = new GpuSettings();
  tracker = new FakeTracker([]);
  const commands = new CommandRegistry();
  for (const id of Object.values(CommandIDs)) {
    commands.addCommand(id, { execute: args => done.push([id, args]) });
  }
  const app = { commands } as unknown as JupyterFrontEnd;
  void notify.activate(app, cluster, null, tracker.tracker, settings);
});

afterEach(() => jest.restoreAllMocks());

function jobs(...given: Parameters<typeof jobView>[0][]): void {
  cluster.jobs = given.map(job => jobView(job));
  cluster.emit();
}

const texts = () => told.map(([text, type]) => [text, type]);

test('a job of mine that fails is told, with its reason', () => {
  jobs({ number: 1 }, { number: 2 }, { number: 3 });
  jobs(
    { number: 1, state: 'failed', reason: 'ended with exit code 3' },
    { number: 2, state: 'succeeded' },
    { number: 3, state: 'failed', reason: 'failed 3 times' }
  );
  expect(texts()).toEqual([
    ['job 1 train: failed, ended with exit code 3', 'error'],
    ['job 3 train: failed 3 times', 'error']
  ]);
});

test('it is told once', () => {
  jobs({});
  jobs({ state: 'failed' });
  jobs({ state: 'failed' });
  expect(told).toHaveLength(1);
});

test('what was over when the page was loaded is not told, nor what others do', () => {
  jobs({ number: 1, state: 'failed' }, { number: 2, mine: false });
  jobs(
    { number: 1, state: 'failed' },
    { number: 2, state: 'failed', mine: false }
  );
  expect(told).toEqual([]);
});

test('all ends are told when that is set', async () => {
  await settings.set('notifyOnEnd', 'all');
  jobs({ number: 1 }, { number: 2 });
  jobs({ number: 1, state: 'succeeded' }, { number: 2, state: 'cancelled' });
  expect(texts()).toEqual([
    ['job 1 train: succeeded', 'success'],
    ['job 2 train: cancelled', 'info']
  ]);
});

test('set to never, nothing is asked for; set back, what ended meanwhile is no news', async () => {
  expect([...cluster.interests]).toEqual([{ topics: ['mine'] }]);
  jobs({});
  await settings.set('notifyOnEnd', 'never');
  expect(cluster.interests.size).toBe(0);
  jobs({ state: 'failed' });
  await settings.set('notifyOnEnd', 'failed');
  expect(cluster.interests.size).toBe(1);
  cluster.emit();
  expect(told).toEqual([]);
});

test('a job whose cell is in view is not told: one sees it', () => {
  const cell = new FakeCell('c1');
  const notebook = new FakeNotebook('a.ipynb', [cell]);
  tracker.notebooks.push(notebook);
  const rect = { top: 0, bottom: 10 } as DOMRect;
  cell.node.getBoundingClientRect = () => rect;
  notebook.content.node.getBoundingClientRect = () => rect;
  jobs({ number: 1, cell_id: 'c1' }, { number: 2, cell_id: 'c2' });
  jobs(
    { number: 1, cell_id: 'c1', state: 'failed' },
    { number: 2, cell_id: 'c2', state: 'failed' }
  );
  expect(texts()).toEqual([['job 2 train: failed', 'error']]);
});

test('many at once are one notification', () => {
  const sweep = (state: string) =>
    Array.from({ length: 20 }, (_, at) => ({ number: at + 1, state }));
  jobs(...sweep('running'));
  jobs(...sweep('failed'));
  expect(texts()).toEqual([['20 jobs have ended, 20 of them failed', 'error']]);
});

test('its buttons open the log and go to the cell, where there is one', () => {
  jobs({ number: 1, notebook_path: '/a.ipynb', cell_id: 'c1' }, { number: 2 });
  jobs(
    { number: 1, notebook_path: '/a.ipynb', cell_id: 'c1', state: 'failed' },
    { number: 2, state: 'failed' }
  );
  const actions = told.map(([, , options]) => options?.actions ?? []);
  expect(actions.map(each => each.map(({ label }) => label))).toEqual([
    ['Open log', 'Go to cell'],
    ['Open log']
  ]);
  actions[0].forEach(action => action.callback(new MouseEvent('click')));
  expect(done).toEqual([
    [CommandIDs.openLog, { job: 'job1' }],
    [CommandIDs.goToCell, { job: 'job1' }]
  ]);
});
