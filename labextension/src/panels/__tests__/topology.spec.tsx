import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { act, fireEvent, render, screen, within } from '@testing-library/react';
import axe from 'axe-core';
import * as React from 'react';

import { GpuView, NodeView } from '../../api/schemas';
import { Highlight } from '../../model/highlight';
import { FakeCluster, gpuView, jobView, nodeView } from '../../model/testing';
import { TopologyChoice } from '../../model/topologyChoice';
import * as words from '../../model/topologyWords';
import { CommandIDs } from '../../tokens';
import { Topology } from '../topology';

const trans = nullTranslator.load('jupyter_gpucluster');

/** jsdom lays nothing out: elements are as large as this test says. */
let size = { width: 250, height: 400 };
beforeAll(() => {
  for (const [property, of] of [
    ['offsetWidth', 'width'],
    ['offsetHeight', 'height'],
    ['clientWidth', 'width'],
    ['clientHeight', 'height']
  ] as const) {
    Object.defineProperty(HTMLElement.prototype, property, {
      configurable: true,
      get: () => size[of]
    });
  }
  HTMLElement.prototype.scrollTo = function (
    this: HTMLElement,
    options?: ScrollToOptions | number
  ) {
    const top = (options as ScrollToOptions).top ?? 0;
    if (top !== this.scrollTop) {
      this.scrollTop = top;
      fireEvent.scroll(this);
    }
  } as HTMLElement['scrollTo'];
});
beforeEach(() => {
  size = { width: 250, height: 400 };
});

const MINE = {
  occupied: true,
  mine: true,
  job_number: 12,
  job_name: 'train',
  job_id: 'job12'
};
const OTHERS = {
  occupied: true,
  job_number: 14,
  job_name: 'speech',
  job_id: 'job14'
};

function node(
  name: string,
  gpus: Partial<GpuView>[],
  given: Partial<NodeView> = {}
): NodeView {
  return nodeView({
    name,
    rack: 'rack-0',
    gpus: gpus.map((gpu, index) =>
      gpuView({ index, uuid: `${name}-${index}`, ...gpu })
    ),
    ...given
  });
}

function show(
  nodes: NodeView[],
  layout: 'narrow' | 'wide' = 'narrow',
  state: Partial<FakeCluster> = {}
) {
  const cluster = new FakeCluster({ nodes, ...state });
  const commands = new CommandRegistry();
  const ran: unknown[][] = [];
  for (const id of [CommandIDs.openLog, CommandIDs.openTopology]) {
    commands.addCommand(id, {
      execute: args => void ran.push([id, args.job ?? null])
    });
  }
  const highlight = new Highlight();
  const choice = new TopologyChoice();
  const rendered = render(
    <Topology
      cluster={cluster}
      commands={commands}
      trans={trans}
      layout={layout}
      highlight={highlight}
      choice={choice}
    />
  );
  return { cluster, ran, highlight, choice, ...rendered };
}

const gpu = (name: string) =>
  screen.getByRole('gridcell', { name: new RegExp(`^${name} ·`) });
const text = (container: Element, part: string) =>
  container.querySelector(`.jp-gpucluster-topology${part}`)?.textContent;

describe('the topology', () => {
  it('shows nodes as rows and GPUs as cells that tell all', () => {
    show([
      node('node-0', [MINE, {}]),
      node('node-1', [{ health: 'bad', note: 'fell off the bus' }])
    ]);
    const rows = screen.getAllByRole('row');
    expect(
      rows.map(row => within(row).getAllByRole('gridcell').length)
    ).toEqual([2, 1]);
    expect(gpu('node-0 GPU 0').getAttribute('aria-label')).toContain(
      'job 12 train (you)'
    );
    expect(gpu('node-1 GPU 0').getAttribute('aria-label')).toContain(
      'out of order: fell off the bus'
    );
  });

  it('follows nodes while it is there, and nothing afterwards', () => {
    const { cluster, unmount } = show([node('node-0', [{}])]);
    expect([...cluster.interests].flatMap(one => one.topics)).toEqual([
      'nodes',
      'status'
    ]);
    unmount();
    expect(cluster.interests.size).toBe(0);
  });

  it('counts what there is in the legend and leaves out what there is not', () => {
    show([node('node-0', [MINE, MINE, OTHERS, {}])]);
    const entries = within(screen.getByRole('list', { name: 'Legend' }))
      .getAllByRole('listitem')
      .map(entry => entry.textContent);
    expect(entries).toEqual(['free1', 'mine2', 'others’1']);
  });

  it('says what is free in one piece', () => {
    const { container } = show([
      node('node-0', [{ nvlink_island: 0 }, { nvlink_island: 0 }, MINE, {}])
    ]);
    expect(text(container, 'Summary')).toContain('3 of 4 GPUs free');
    expect(text(container, 'Largest')).toBe(
      'Largest free: NVLink island 2 · node 3'
    );
  });

  it('says of each type what is free when there are two', () => {
    show([node('a', [{}, {}]), node('b', [{ type: 'T4' }])]);
    const rows = within(screen.getByRole('table')).getAllByRole('row');
    expect(rows.map(row => row.textContent).slice(1)).toEqual([
      'A100–22 of 2',
      'T4–11 of 1'
    ]);
  });

  it('says that GPUs are simulated, and how many where some are', () => {
    const { container, unmount } = show([
      node('a', [{ simulated: true }, { simulated: true }])
    ]);
    expect(text(container, 'FreeInAll')).toContain('simulated');
    unmount();
    const mixed = show([node('a', [{ simulated: true }, {}])]);
    expect(text(mixed.container, 'FreeInAll')).toContain('1 simulated');
  });

  it('shows why a node is cordoned', () => {
    const { container } = show([
      node('a', [{}], {
        health: 'cordoned',
        set_by: 'ada',
        set_reason: 'new fans'
      })
    ]);
    expect(text(container, 'NodeNote')).toBe('cordoned by ada: new fans');
  });

  it('draws only the nodes in sight', () => {
    show(Array.from({ length: 1250 }, (_, at) => node(`n-${at}`, [{}])));
    expect(screen.getAllByRole('row').length).toBeLessThan(60);
    expect(screen.getByRole('grid').getAttribute('aria-rowcount')).toBe('1250');
  });

  it('does not draw a node anew whose view is the same', () => {
    const same = node('a', [{}]);
    const { cluster } = show([same, node('b', [{}])]);
    const drawn = jest.spyOn(words, 'nodeText');
    cluster.nodes = [same, node('b', [MINE])];
    act(() => cluster.emit());
    expect(drawn.mock.calls.map(([tree]) => tree.node.name)).toEqual(['b']);
    drawn.mockRestore();
    expect(gpu('b GPU 0').getAttribute('aria-label')).toContain('(you)');
  });

  it('tells that nothing is known yet, or that there are no nodes', () => {
    const { container, cluster } = show([], 'narrow', { known: [] });
    expect(text(container, 'Nothing')).toBe('Not known yet.');
    cluster.known = ['nodes'];
    act(() => cluster.emit());
    expect(text(container, 'Nothing')).toBe('The cluster has no nodes.');
  });

  it('filters nodes when there are many', () => {
    const { container } = show([
      ...Array.from({ length: 9 }, (_, at) => node(`n-${at}`, [{}])),
      node('special', [MINE])
    ]);
    const filter = screen.getByRole('searchbox', { name: 'Filter nodes' });
    fireEvent.change(filter, { target: { value: '#12' } });
    expect(
      screen.getAllByRole('rowheader').map(head => head.textContent)
    ).toEqual(['special']);
    fireEvent.change(filter, { target: { value: 'nowhere' } });
    expect(text(container, 'Nothing')).toBe('No node matches “nowhere”.');
  });

  it('forgets the filter when there are few nodes again', () => {
    const many = Array.from({ length: 9 }, (_, at) => node(`n-${at}`, [{}]));
    const { cluster } = show(many);
    fireEvent.change(screen.getByRole('searchbox'), {
      target: { value: 'nowhere' }
    });
    expect(screen.queryAllByRole('row')).toEqual([]);
    cluster.nodes = many.slice(0, 2);
    act(() => cluster.emit());
    expect(screen.getAllByRole('row').length).toBe(2);
  });

  it('has no filter for a few nodes', () => {
    show([node('a', [{}])]);
    expect(screen.queryByRole('searchbox')).toBeNull();
  });
});

describe('pointing', () => {
  it('tells of what the pointer is on, and shows up its job', () => {
    const { container, highlight } = show([node('a', [MINE, MINE, {}])]);
    fireEvent.pointerOver(gpu('a GPU 1'));
    expect(text(container, 'Detail')).toMatch(/^a GPU 1 · .*job 12 train/);
    expect(highlight.job).toBe(12);
    expect(gpu('a GPU 0').getAttribute('aria-selected')).toBe('true');
    expect(gpu('a GPU 2').getAttribute('aria-selected')).toBe('false');
    fireEvent.pointerOver(screen.getByRole('rowheader'));
    expect(text(container, 'Detail')).toMatch(/^a · rack-0 · 3 × A100/);
    fireEvent.pointerOut(screen.getByRole('rowheader'), {
      relatedTarget: document.body
    });
    expect(highlight.job).toBeNull();
    expect(text(container, 'Detail')).toBeUndefined();
  });

  it('names the owner of a job that the page knows', () => {
    const { container } = show([node('a', [OTHERS])], 'narrow', {
      jobs: [jobView({ id: 'job14', owner_name: 'grace', mine: false })]
    });
    fireEvent.pointerOver(gpu('a GPU 0'));
    expect(text(container, 'Detail')).toContain('job 14 speech (grace)');
  });

  it('the title alone is bold, whatever names have in them', () => {
    const { container } = show([
      node('a · b', [{ ...MINE, job_name: 'x · y' }])
    ]);
    const detail = () =>
      container.querySelector('.jp-gpucluster-topologyDetail')!;
    fireEvent.pointerOver(screen.getAllByRole('gridcell')[0]);
    expect(detail().querySelector('b')!.textContent).toBe('a · b GPU 0');
    expect(detail().textContent).toContain('job 12 x · y (you)');
    fireEvent.pointerOver(screen.getByRole('rowheader'));
    expect(detail().querySelector('b')!.textContent).toBe('a · b');
    expect(detail().textContent).toMatch(/^a · b · rack-0 · 1 × A100/);
  });

  it('a click keeps a job shown up, until the next one', () => {
    const { highlight, cluster } = show([node('a', [MINE, OTHERS, {}])]);
    fireEvent.click(gpu('a GPU 0'));
    expect(highlight.pinned).toBe(12);
    expect([...cluster.interests][0].jobs).toEqual(['job12']);
    fireEvent.click(gpu('a GPU 0'));
    expect(highlight.pinned).toBeNull();
    fireEvent.click(gpu('a GPU 1'));
    fireEvent.click(gpu('a GPU 2'));
    expect(highlight.pinned).toBeNull();
  });

  it('a job shown up by another view is shown up here', () => {
    const { highlight } = show([node('a', [MINE, {}])]);
    act(() => highlight.hover(12));
    expect(gpu('a GPU 0').getAttribute('aria-selected')).toBe('true');
  });

  it('a click does not keep the pointer’s place: what is kept is the job', () => {
    const { container } = show([node('a', [MINE, {}])]);
    const clicked = gpu('a GPU 0');
    fireEvent.pointerOver(clicked);
    fireEvent.pointerDown(clicked);
    act(() => clicked.focus());
    fireEvent.click(clicked);
    fireEvent.pointerOut(clicked, { relatedTarget: document.body });
    expect(text(container, 'Detail')).toMatch(/^job 12 train \(you\)/);
  });

  it('the pinned job can be opened where its log may be read', () => {
    const { highlight, ran } = show([node('a', [MINE, OTHERS])]);
    act(() => highlight.pin(12));
    fireEvent.click(screen.getByRole('button', { name: 'Open log' }));
    expect(ran).toEqual([[CommandIDs.openLog, 'job12']]);
    act(() => highlight.pin(14));
    expect(screen.queryByRole('button', { name: 'Open log' })).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Show all alike' }));
    expect(highlight.pinned).toBeNull();
  });
});

describe('the keyboard', () => {
  const press = (key: string, given = {}) =>
    act(() => {
      fireEvent.keyDown(document.activeElement!, { key, ...given });
    });

  it('finds one box in the tab order and walks from there', () => {
    const { container } = show([
      node('a', [MINE, {}]),
      node('b', [{}, OTHERS])
    ]);
    const inOrder = container.querySelectorAll('[role=grid] [tabindex="0"]');
    expect(inOrder.length).toBe(1);
    act(() => (inOrder[0] as HTMLElement).focus());
    press('ArrowRight');
    expect(document.activeElement).toBe(gpu('a GPU 0'));
    expect(text(container, 'Detail')).toMatch(/^a GPU 0/);
    press('ArrowDown');
    expect(document.activeElement).toBe(gpu('b GPU 0'));
    press('End');
    expect(document.activeElement).toBe(gpu('b GPU 1'));
    expect(
      container.querySelectorAll('[role=grid] [tabindex="0"]').length
    ).toBe(1);
  });

  it('reaches a node that was not drawn', () => {
    show(Array.from({ length: 300 }, (_, at) => node(`n-${at}`, [{}])));
    act(() => gpu('n-0 GPU 0').focus());
    press('End', { ctrlKey: true });
    expect(document.activeElement).toBe(gpu('n-299 GPU 0'));
  });

  it('keeps the focus when the node that has it changes', () => {
    const { cluster } = show([node('a', [{}, {}])]);
    act(() => gpu('a GPU 1').focus());
    cluster.nodes = [node('a', [{}, MINE])];
    act(() => cluster.emit());
    expect(document.activeElement).toBe(gpu('a GPU 1'));
  });

  it('Enter opens the log that may be read, else shows the job up', () => {
    const { ran, highlight } = show([node('a', [MINE, OTHERS])], 'narrow', {
      jobs: [jobView({ id: 'job14', mine: false, can_read: false })]
    });
    act(() => gpu('a GPU 0').focus());
    press('Enter');
    expect(ran).toEqual([[CommandIDs.openLog, 'job12']]);
    press('ArrowRight');
    press('Enter');
    expect(ran.length).toBe(1);
    expect(highlight.pinned).toBe(14);
    press('Escape');
    expect([highlight.pinned, highlight.job]).toEqual([null, null]);
  });

  it('only the keys of the grid are kept from Lab', () => {
    show([node('a', [MINE, {}])]);
    act(() => gpu('a GPU 0').focus());
    const isKept = (key: string, given = {}) => {
      const isLeft = fireEvent.keyDown(document.activeElement!, {
        key,
        ...given
      });
      const isSuppressed =
        document.activeElement!.closest('[data-lm-suppress-shortcuts]') !==
        null;
      expect(isSuppressed).toBe(!isLeft); // what the grid handles, and that alone
      return isSuppressed;
    };
    for (const key of ['ArrowLeft', 'ArrowDown', 'PageUp', ' ', 'Escape']) {
      expect([key, isKept(key)]).toEqual([key, true]);
    }
    expect(isKept('End', { ctrlKey: true })).toBe(true);
    expect(isKept('s', { ctrlKey: true })).toBe(false);
    expect(isKept('c', { ctrlKey: true, shiftKey: true })).toBe(false);
    expect(isKept('Enter', { ctrlKey: true })).toBe(false);
    expect(isKept('ArrowLeft', { altKey: true })).toBe(false);
    expect(isKept('j')).toBe(false);
  });

  it('Space keeps a job shown up', () => {
    const { highlight } = show([node('a', [MINE])]);
    act(() => gpu('a GPU 0').focus());
    press(' ');
    expect(highlight.pinned).toBe(12);
  });
});

describe('colours', () => {
  it('stand for jobs, or for utilisation; the choice is shared and kept', async () => {
    const { choice, container } = show([
      node('a', [
        { ...MINE, utilization_percent: 1 },
        { ...OTHERS, utilization_percent: 50 },
        { utilization_percent: 0 },
        {}
      ])
    ]);
    await act(async () => {
      fireEvent.click(screen.getByRole('button', { name: 'Utilisation' }));
    });
    expect(choice.values.colourBy).toBe('utilisation');
    expect(
      container.querySelector('.jp-gpucluster-mod-by-utilisation')
    ).toBeTruthy();
    const entries = within(screen.getByRole('list', { name: 'Legend' }))
      .getAllByRole('listitem')
      .map(entry => entry.textContent);
    expect(entries).toEqual([
      'not in use1',
      'idle (below 5 %)1',
      '35–69 %1',
      'not measured1',
      'mine1'
    ]);
    await act(async () => choice.set('colourBy', 'job'));
    expect(
      screen.getByRole('button', { name: 'Jobs' }).getAttribute('aria-pressed')
    ).toBe('true');
  });
});

describe('the large view', () => {
  beforeEach(() => {
    size = { width: 1400, height: 900 };
  });

  it('names sockets, switches, islands, jobs, utilisation and memory', () => {
    const { container } = show(
      [
        node('a', [
          {
            ...MINE,
            nvlink_island: 0,
            utilization_percent: 87,
            memory_used_bytes: 41 * 2 ** 30
          },
          { nvlink_island: 0, socket: 1, switch: 1 }
        ])
      ],
      'wide'
    );
    const tile = gpu('a GPU 0');
    expect(tile.textContent).toContain('#12');
    expect(tile.textContent).toContain('87 %');
    expect(tile.textContent).toContain('41/80 GiB');
    expect(text(container, 'IslandName')).toBe('NVLink island 0: 1 of 2 free');
    expect(
      [...container.querySelectorAll<HTMLElement>('[data-label]')].map(
        box => box.dataset.label
      )
    ).toEqual(['socket 0', 'switch 0', 'socket 1', 'switch 1']);
  });

  it('begins small when there are many nodes, and large for a few', async () => {
    const many = Array.from({ length: 9 }, (_, at) => node(`n-${at}`, [{}]));
    const { container, choice } = show(many, 'wide');
    const rooms = () => [
      container.querySelector('.jp-gpucluster-mod-dense') !== null,
      container.querySelector('.jp-gpucluster-mod-roomy') !== null
    ];
    expect(rooms()).toEqual([true, false]);
    await act(async () => {
      fireEvent.click(screen.getByRole('button', { name: 'Large' }));
    });
    expect(rooms()).toEqual([false, true]);
    expect(choice.values.topologySize).toBe('large');
  });

  it('lists the jobs on the GPUs; a click shows one up', () => {
    const { highlight } = show([node('a', [OTHERS, MINE, OTHERS])], 'wide');
    const jobs = within(
      screen.getByRole('list', { name: 'Jobs' })
    ).getAllByRole('button');
    expect(jobs.map(job => job.textContent)).toEqual([
      '#12 train1 GPU',
      '#14 speech2 GPUs'
    ]);
    fireEvent.click(jobs[1]);
    expect(highlight.pinned).toBe(14);
  });
});

it('opens large from the sidebar', () => {
  const { ran } = show([node('a', [{}])]);
  fireEvent.click(
    screen.getByRole('button', { name: 'Show the topology large' })
  );
  expect(ran).toEqual([[CommandIDs.openTopology, null]]);
});

it.each(['narrow', 'wide'] as const)(
  'has nothing that axe finds fault with (%s)',
  async layout => {
    const { container } = show(
      [
        node('a', [MINE, OTHERS, {}], { health: 'cordoned', set_by: 'ada' }),
        node('b', [{ type: 'T4', simulated: true }], { rack: 'rack-1' })
      ],
      layout
    );
    const { violations } = await axe.run(container, {
      rules: { 'color-contrast': { enabled: false } } // needs a browser
    });
    expect(violations.map(one => one.id)).toEqual([]);
  }
);
