import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { MessageLoop } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';
import { act, fireEvent, screen, within } from '@testing-library/react';

import {
  FakeCluster,
  fakeCluster,
  jobView,
  liveStatus,
  queueView
} from '../../model/testing';
import { ViewState } from '../../model/viewState';
import { Topic } from '../../tokens';
import { Sidebar } from '../sidebar';

const trans = nullTranslator.load('jupyter_gpucluster');

let area: Panel;
let sidebar: Sidebar;

async function open(
  cluster: FakeCluster,
  view = new ViewState()
): Promise<void> {
  sidebar = new Sidebar({
    cluster,
    commands: new CommandRegistry(),
    view,
    trans
  });
  area = new Panel();
  area.addWidget(sidebar);
  await act(async () => {
    Widget.attach(area, document.body);
    MessageLoop.flush();
  });
}

/** Lab shows another panel of the left area, closes the area, or brings it back. */
async function show(isShown: boolean): Promise<void> {
  await act(async () => {
    area.setHidden(!isShown);
    MessageLoop.flush();
  });
}

afterEach(async () => {
  await act(async () => {
    area.dispose();
  });
});

function cluster(): FakeCluster {
  return fakeCluster({
    status: liveStatus({
      cluster: 'vision-lab',
      simulated: true,
      nodes: 4,
      gpus: 32,
      gpus_healthy: 31,
      gpus_used: 12,
      my_running: 1,
      my_waiting: 2,
      notes: ['The guarantees are cut down while a node is away.']
    }),
    queues: [queueView({ name: 'vision' })],
    jobs: [jobView({ number: 12 })]
  });
}

function watched(given: FakeCluster): Topic[] {
  const topics = [...given.interests].flatMap(one => one.topics ?? []);
  return [...new Set(topics)].sort();
}

function header(name: string): HTMLElement {
  const heading = screen.getByRole('heading', {
    level: 3,
    name: new RegExp(`^${name}`)
  });
  return within(heading).getByRole('button');
}

describe('the sidebar', () => {
  it('says in its header which cluster it is and how full', async () => {
    await open(cluster());
    expect(
      screen.getByRole('heading', { name: 'GPU cluster vision-lab' })
    ).toBeTruthy();
    const text = sidebar.node.textContent;
    expect(text).toContain(
      '12 of 32 GPUs in use · 4 nodes · 1 GPU not healthy'
    );
    expect(text).toContain('simulated');
    expect(text).toContain('The guarantees are cut down while a node is away.');
  });

  it('sums the jobs up beside their heading, open or closed', async () => {
    await open(cluster());
    expect(header('Jobs').textContent).toBe('Jobs1 running · 2 waiting');
    fireEvent.click(header('Jobs'));
    expect(header('Jobs').textContent).toBe('Jobs1 running · 2 waiting');
  });

  it('has three sections, and asks for what they show', async () => {
    const given = cluster();
    await open(given);
    for (const name of ['Queues', 'Topology', 'Jobs']) {
      expect(header(name).getAttribute('aria-expanded')).toBe('true');
    }
    expect(screen.getByRole('tree', { name: 'Queues' })).toBeTruthy();
    expect(watched(given)).toEqual(['mine', 'nodes', 'queues', 'status']);
  });

  it('asks for nothing that a closed section would show', async () => {
    const given = cluster();
    await open(given);
    fireEvent.click(header('Queues'));
    expect(screen.queryByRole('tree', { name: 'Queues' })).toBeNull();
    expect(watched(given)).toEqual(['mine', 'nodes', 'status']);
    fireEvent.click(header('Topology'));
    fireEvent.click(header('Jobs'));
    expect(watched(given)).toEqual(['status']);
    fireEvent.click(header('Queues'));
    expect(watched(given)).toEqual(['queues', 'status']);
  });

  it('asks for nothing at all while it is hidden, and again when it is shown', async () => {
    const given = cluster();
    await open(given);
    await show(false);
    expect(given.interests.size).toBe(0);
    await show(true);
    expect(watched(given)).toEqual(['mine', 'nodes', 'queues', 'status']);
  });

  it('is found again as it was left, and as things are by then', async () => {
    const given = cluster();
    await open(given);
    const text = () => sidebar.node.textContent;
    fireEvent.click(header('Topology'));
    const tree = screen.getByRole('tree', { name: 'Queues' });
    await show(false);
    given.status = liveStatus({ gpus: 32, gpus_used: 20 });
    await act(async () => given.emit());
    expect(text()).toContain('12 of 32 GPUs in use');
    await show(true);
    expect(text()).toContain('20 of 32 GPUs in use');
    expect(screen.getByRole('tree', { name: 'Queues' })).toBe(tree);
    expect(header('Topology').getAttribute('aria-expanded')).toBe('false');
  });

  it('asks for nothing when it was hidden from the beginning', async () => {
    const given = cluster();
    sidebar = new Sidebar({
      cluster: given,
      commands: new CommandRegistry(),
      view: new ViewState(),
      trans
    });
    area = new Panel();
    area.hide();
    area.addWidget(sidebar);
    await act(async () => {
      Widget.attach(area, document.body);
      MessageLoop.flush();
    });
    expect(given.interests.size).toBe(0);
    await show(true);
    expect(given.interests.size).toBeGreaterThan(0);
  });

  it('remembers which sections are open', async () => {
    const view = new ViewState();
    view.set({ closedSections: ['topology', 'jobs'] });
    const given = cluster();
    await open(given, view);
    expect(header('Topology').getAttribute('aria-expanded')).toBe('false');
    expect(watched(given)).toEqual(['queues', 'status']);
  });

  it('keeps what it shows, and says so, while the scheduler is away', async () => {
    const given = cluster();
    await open(given);
    given.connection = { state: 'away', reason: 'no answer', hint: null };
    await act(async () => given.emit());
    expect(sidebar.node.textContent).toContain('No answer.');
    expect(screen.getByRole('treeitem', { name: /^vision/ })).toBeTruthy();
    given.connection = { state: 'live' };
    await act(async () => given.emit());
    expect(sidebar.node.textContent).not.toContain('No answer.');
    expect(screen.queryByRole('button', { name: 'Retry' })).toBeNull();
  });

  it('is never blank: before the first data it says that it is connecting', async () => {
    await open(fakeCluster({ known: [], heardMs: null }));
    expect(screen.getByRole('heading', { name: 'GPU cluster' })).toBeTruthy();
    expect(
      screen.getAllByText('Connecting to the cluster…').length
    ).toBeGreaterThan(0);
  });
});

describe('the height of a section', () => {
  it('is set with the arrow keys, and given up with Enter', async () => {
    const view = new ViewState();
    await open(cluster(), view);
    const separator = screen.getByRole('separator', {
      name: 'Height of Queues'
    });
    fireEvent.keyDown(separator, { key: 'ArrowDown' });
    expect(view.current.heights.queues).toBeGreaterThan(0);
    fireEvent.keyDown(separator, { key: 'Enter' });
    expect(view.current.heights.queues).toBeUndefined();
  });

  it('is not offered for the jobs: they take what is left', async () => {
    await open(cluster());
    const jobs = screen.getByRole('region', { name: 'Jobs' });
    expect(within(jobs).queryByRole('separator')).toBeNull();
  });
});
