import { NodeView } from '../../api/schemas';
import {
  busyStep,
  gpuKind,
  isDraining,
  JOB_COLORS,
  jobColor,
  nodeTree,
  topology
} from '../topology';
import { gpuView, nodeView } from '../testing';

type Gpus = NodeView['gpus'];

/** `what` of each GPU: "." free, "m" mine, "o" others', "#" a stranger's, "f" foreign, "x" bad. */
function gpus(what: string, given: Partial<Gpus[0]> = {}): Gpus {
  return [...what].map((mark, index) => {
    const held = { occupied: true };
    const kinds: Record<string, Partial<Gpus[0]>> = {
      '.': {},
      m: { ...held, mine: true, job_number: 12, job_name: 'mine', job_id: 'j' },
      o: { ...held, job_number: 14, job_name: 'theirs', job_id: 'k' },
      '#': held,
      f: { ...held, health: 'foreign' },
      x: { health: 'bad' }
    };
    return gpuView({
      index,
      uuid: `GPU-${index}`,
      socket: Math.floor((index * 2) / what.length),
      switch: Math.floor((index * 4) / what.length),
      ...given,
      ...kinds[mark]
    });
  });
}

function node(name: string, what: string, given: Partial<NodeView> = {}) {
  return nodeView({ name, gpus: gpus(what), ...given });
}

describe('what a GPU is to the caller', () => {
  it('is told apart for every kind of holder', () => {
    const { counts } = topology([node('a', '..moo#fx')]);
    expect(counts).toEqual({
      free: 2,
      mine: 1,
      others: 2,
      occupied: 1,
      foreign: 1,
      bad: 1,
      closed: 0
    });
  });

  it.each(['cordoned', 'lost', 'a health of a later version'])(
    'is closed, not free, on a node that is %s',
    health => {
      const { counts, free } = topology([node('a', '..m', { health })]);
      expect([counts.free, counts.closed, counts.mine]).toEqual([0, 2, 1]);
      expect(free.node).toBe(0);
    }
  );

  it('is the job on it when a foreign program uses it as well', () => {
    const [gpu] = gpus('m', {});
    expect(gpuKind(node('a', ''), { ...gpu, health: 'foreign' })).toBe('mine');
    expect(gpuKind(node('a', ''), { ...gpu, health: 'bad' })).toBe('bad');
  });

  it('of a cordoned node with jobs is a draining one', () => {
    const of = (what: string, health: string) =>
      isDraining(nodeTree(node('a', what, { health })));
    expect(of('.#', 'cordoned')).toBe(true);
    expect(of('.f', 'cordoned')).toBe(false);
    expect(of('.#', 'ready')).toBe(false);
  });
});

describe('the tree', () => {
  it('nests GPUs by socket and switch, whatever order they come in', () => {
    const tree = nodeTree(nodeView({ gpus: [...gpus('........')].reverse() }));
    expect(
      tree.sockets.map(socket =>
        socket.switches.map(({ number, boxes }) => [
          number,
          boxes.map(box => box.gpu.index)
        ])
      )
    ).toEqual([
      [
        [0, [0, 1]],
        [1, [2, 3]]
      ],
      [
        [2, [4, 5]],
        [3, [6, 7]]
      ]
    ]);
  });

  it('sorts racks and nodes as people count', () => {
    const { racks } = topology([
      node('n-10', '.', { rack: 'rack-10' }),
      node('n-2', '.', { rack: 'rack-2' }),
      node('n-1', '.', { rack: 'rack-10' })
    ]);
    expect(
      racks.map(rack => [rack.name, rack.nodes.map(tree => tree.node.name)])
    ).toEqual([
      ['rack-2', ['n-2']],
      ['rack-10', ['n-1', 'n-10']]
    ]);
  });

  it('is made once for each view of a node', () => {
    const view = node('a', '..');
    const [first] = topology([view, node('b', '.')]).racks[0].nodes;
    const [again] = topology([view, node('b', 'm')]).racks[0].nodes;
    expect(again).toBe(first);
  });

  it('knows the NVLink islands and what is free in them', () => {
    const view = node('a', '..m.');
    const islands = [3, 3, 7, 7];
    view.gpus.forEach((gpu, at) => (gpu.nvlink_island = islands[at]));
    const tree = nodeTree(view);
    expect(tree.islands).toEqual([
      { number: 3, gpus: 2, free: 2 },
      { number: 7, gpus: 2, free: 1 }
    ]);
    expect(tree.isInterleaved).toBe(false);
  });

  it('knows when the GPUs of an island do not stand side by side', () => {
    const view = node('a', '....');
    view.gpus.forEach((gpu, at) => (gpu.nvlink_island = at % 2));
    expect(nodeTree(view).isInterleaved).toBe(true);
  });

  it('of a node without GPUs is empty', () => {
    const whole = topology([node('cpu-0', '')]);
    expect([whole.gpus, whole.nodes, whole.free.node]).toEqual([0, 1, 0]);
    expect(whole.free.island).toBeNull();
  });
});

describe('what is free in one piece', () => {
  it('is the most within one topology cell of each level', () => {
    const linked = (name: string, what: string, rack: string) => {
      const view = node(name, what, { rack });
      view.gpus.forEach((gpu, at) => (gpu.nvlink_island = at < 4 ? 0 : 1));
      return view;
    };
    const { free } = topology([
      linked('a', 'm..m....', 'rack-0'), // 6: 2 and 4
      linked('b', 'mmmm..mm', 'rack-0'), // 2
      linked('c', '.m.m.m.m', 'rack-1') // 4, scattered
    ]);
    expect(free).toEqual({
      gpus: 24,
      free: 12,
      rack: 8,
      node: 6,
      socket: 4,
      switch: 2,
      island: 4
    });
  });

  it('has no island where there is no NVLink', () => {
    expect(topology([node('a', '..')]).free.island).toBeNull();
  });

  it('does not count what is bad, foreign or on a cordoned node', () => {
    const { free } = topology([
      node('a', '.fx.'),
      node('b', '....', { health: 'cordoned' })
    ]);
    expect([free.free, free.node]).toEqual([2, 2]);
  });

  it('is told of each type alone, also of two types on one node', () => {
    const mixed = node('a', '....');
    mixed.gpus[3].type = 'T4';
    const { free, freeByType } = topology([
      mixed,
      nodeView({ name: 'b', gpus: gpus('.....m', { type: 'T4' }) })
    ]);
    expect([...freeByType.keys()]).toEqual(['A100', 'T4']);
    expect(freeByType.get('A100')).toMatchObject({ gpus: 3, free: 3, node: 3 });
    expect(freeByType.get('T4')).toMatchObject({ gpus: 7, free: 6, node: 5 });
    expect(free.node).toBe(5);
  });
});

describe('jobs on the GPUs', () => {
  it('are counted over nodes, mine first', () => {
    const { jobs } = topology([node('a', 'oom#'), node('b', 'o...')]);
    expect(jobs).toEqual([
      { number: 12, name: 'mine', id: 'j', mine: true, gpus: 1, nodes: 1 },
      { number: 14, name: 'theirs', id: 'k', mine: false, gpus: 3, nodes: 2 }
    ]);
  });

  it('have colours that stay, and differ for jobs one after another', () => {
    const colors = Array.from({ length: JOB_COLORS }, (_, at) =>
      jobColor(40 + at)
    );
    expect(new Set(colors).size).toBe(JOB_COLORS);
    expect(jobColor(40)).toBe(jobColor(40 + JOB_COLORS));
  });
});

describe('utilisation', () => {
  it('is counted by steps for what is in use, and apart for the rest', () => {
    const view = node('a', 'mmo#f.x.');
    const percents = [0, 4, 5, 70, 100, 0, null, null];
    view.gpus.forEach((gpu, at) => (gpu.utilization_percent = percents[at]));
    expect(topology([view]).usage).toEqual({
      steps: [2, 1, 0, 2],
      unused: 1,
      notMeasured: 2
    });
  });

  it.each([
    [0, 0],
    [4, 0],
    [5, 1],
    [34, 1],
    [35, 2],
    [69, 2],
    [70, 3],
    [100, 3]
  ])('of %i %% is step %i', (percent, step) => {
    expect(busyStep(percent)).toBe(step);
  });
});
