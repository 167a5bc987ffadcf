import { NodeView } from '../../api/schemas';
import { gpuView, nodeView } from '../testing';
import { nodeTree, topology } from '../topology';
import {
  filtered,
  gpuLines,
  IPlace,
  moved,
  rows,
  widestLine
} from '../topologyLayout';

function node(name: string, gpus = 8, given: Partial<NodeView> = {}) {
  const views = Array.from({ length: gpus }, (_, index) =>
    gpuView({
      index,
      uuid: `${name}-${index}`,
      socket: Math.floor((index * 2) / gpus),
      switch: Math.floor((index * 4) / gpus)
    })
  );
  return nodeView({ name, rack: 'rack-0', gpus: views, ...given });
}

const grid = (nodes: NodeView[], columns = 1) =>
  rows(topology(nodes).racks, columns);

describe('rows', () => {
  it('have a heading for each rack where there are several', () => {
    const kinds = (nodes: NodeView[]) => grid(nodes).map(row => row.kind);
    expect(kinds([node('a'), node('b')])).toEqual(['nodes', 'nodes']);
    expect(kinds([node('a'), node('b', 8, { rack: 'rack-1' })])).toEqual([
      'rack',
      'nodes',
      'rack',
      'nodes'
    ]);
  });

  it('hold as many nodes as there are columns, of one rack', () => {
    const found = grid(
      [node('a'), node('b'), node('c'), node('d', 8, { rack: 'rack-1' })],
      2
    );
    expect(
      found.map(row =>
        row.kind === 'nodes'
          ? [row.nodes.map(tree => tree.node.name).join(), row.isLastOfRack]
          : row.rack.name
      )
    ).toEqual(['rack-0', ['a,b', false], ['c', true], 'rack-1', ['d', true]]);
  });

  it('have room for the note of a cordoned node', () => {
    const [plain, noted] = grid([
      node('a'),
      node('b', 8, { health: 'cordoned' })
    ]);
    expect([plain, noted]).toMatchObject([
      { hasNote: false },
      { hasNote: true }
    ]);
  });
});

describe('the lines of a node', () => {
  const shape = (view: NodeView) =>
    gpuLines(nodeTree(view)).map(sockets =>
      sockets.map(socket =>
        socket.switches.map(({ boxes }) => boxes.map(box => box.gpu.index))
      )
    );

  it('are one for eight GPUs', () => {
    expect(shape(node('a', 8))).toEqual([
      [
        [
          [0, 1],
          [2, 3]
        ],
        [
          [4, 5],
          [6, 7]
        ]
      ]
    ]);
  });

  it('keep sockets whole', () => {
    expect(shape(node('a', 12)).map(line => line.flat(2))).toEqual([
      [0, 1, 2, 3, 4, 5],
      [6, 7, 8, 9, 10, 11]
    ]);
  });

  it('cut a large socket between switches, and a large switch as need be', () => {
    const one = node('a', 20);
    one.gpus.forEach((gpu, at) => {
      gpu.socket = 0;
      gpu.switch = at < 5 ? 0 : 1;
    });
    expect(shape(one).map(line => line.flat(2).length)).toEqual([5, 8, 7]);
  });

  it('are one, empty, without GPUs', () => {
    expect(shape(node('a', 0))).toEqual([[]]);
  });

  it('are as wide as their squares and gaps', () => {
    // 8 squares, 4 gaps in switches, 2 in sockets, 1 between them
    expect(widestLine(grid([node('a', 8), node('b', 4)]), 10)).toBe(
      80 + 4 * 2 + 2 * 5 + 9
    );
  });
});

describe('the filter', () => {
  const job = node('gpu-1', 2, { rack: 'row-7' });
  Object.assign(job.gpus[0], { job_number: 12, job_name: 'Train' });
  const other = node('gpu-2', 2, { health: 'cordoned' });
  Object.assign(other.gpus[0], { job_number: 120, job_name: 'eval' });
  other.gpus.forEach(gpu => (gpu.type = 'T4'));
  const { racks } = topology([job, other]);
  const found = (filter: string) =>
    filtered(racks, filter).flatMap(rack =>
      rack.nodes.map(tree => tree.node.name)
    );

  it.each([
    ['', ['gpu-2', 'gpu-1']],
    ['gpu-1', ['gpu-1']],
    ['ROW-7', ['gpu-1']],
    ['t4', ['gpu-2']],
    ['train', ['gpu-1']],
    ['#12', ['gpu-1']],
    ['#120', ['gpu-2']],
    ['cordoned', ['gpu-2']],
    ['gpu train', ['gpu-1']],
    ['gpu-2 train', []],
    ['free', ['gpu-1']]
  ])('"%s" finds %j', (filter, names) => {
    expect(found(filter)).toEqual(names);
  });
});

describe('the arrow keys', () => {
  // Two columns: a b / c, with two GPUs each.
  const places = grid([node('a', 2), node('b', 2), node('c', 1)], 2);
  const go = (from: IPlace, key: string, control = false) => {
    const to = moved(places, from, key, control);
    return to && `${to.node}${to.box}`;
  };

  it.each<[string, IPlace, string, string | null]>([
    ['the GPUs of a node', { node: 'a', box: -1 }, 'ArrowRight', 'a0'],
    ['back to the node', { node: 'a', box: 0 }, 'ArrowLeft', 'a-1'],
    ['the next node', { node: 'a', box: 1 }, 'ArrowRight', 'b-1'],
    ['the end of the node before', { node: 'b', box: -1 }, 'ArrowLeft', 'a1'],
    ['the node below', { node: 'a', box: 0 }, 'ArrowDown', 'c0'],
    ['the last there is below', { node: 'b', box: 1 }, 'ArrowDown', 'c0'],
    ['the node above', { node: 'c', box: 0 }, 'ArrowUp', 'a0'],
    ['nowhere at the top', { node: 'b', box: 0 }, 'ArrowUp', null],
    ['nowhere at the end', { node: 'c', box: 0 }, 'ArrowRight', null],
    ['the last row, by pages', { node: 'a', box: 1 }, 'PageDown', 'c0'],
    ['nowhere for another key', { node: 'a', box: 1 }, 'x', null]
  ])('lead to %s', (_, from, key, to) => {
    expect(go(from, key)).toBe(to);
  });

  it('Home and End lead to the ends of the node, with Control of all', () => {
    const from = { node: 'b', box: 0 };
    expect([
      go(from, 'Home'),
      go(from, 'End'),
      go(from, 'Home', true),
      go(from, 'End', true)
    ]).toEqual(['b-1', 'b1', 'a-1', 'c0']);
  });

  it('lead nowhere from a node that is gone', () => {
    expect(go({ node: 'z', box: 0 }, 'ArrowRight')).toBeNull();
  });
});
