/** How the topology is laid out: nodes in rows and columns, the GPUs of a node in lines; and where the arrow keys lead. Pure. */
import { IGpuBox, INodeTree, IRack, ISocket, isOpen } from './topology';

/** GPUs side by side; a node with more has several lines. */
export const GPUS_PER_LINE = 8;

export type Row =
  | { kind: 'rack'; key: string; rack: IRack }
  | {
      kind: 'nodes';
      key: string;
      nodes: readonly INodeTree[];
      /** Most lines of GPUs that one of its nodes has. */
      lines: number;
      /** One of its nodes has a note. */
      hasNote: boolean;
      isLastOfRack: boolean;
    };

/** Racks have headings only where there are several. */
export function rows(racks: readonly IRack[], columns: number): Row[] {
  const found: Row[] = [];
  for (const rack of racks) {
    if (racks.length > 1) {
      found.push({ kind: 'rack', key: `rack ${rack.name}`, rack });
    }
    for (let at = 0; at < rack.nodes.length; at += columns) {
      const nodes = rack.nodes.slice(at, at + columns);
      found.push({
        kind: 'nodes',
        key: `node ${nodes[0].node.name}`,
        nodes,
        lines: Math.max(...nodes.map(tree => gpuLines(tree).length)),
        hasNote: nodes.some(hasNote),
        isLastOfRack: at + columns >= rack.nodes.length
      });
    }
  }
  return found;
}

/** Whether there is a line about the node: `nodeNotes` has its words. */
function hasNote({ node }: INodeTree): boolean {
  return !isOpen(node) || node.notes.length > 0;
}

/** The racks with those of their nodes in which every word of the filter is found. */
export function filtered(racks: readonly IRack[], filter: string): IRack[] {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) {
    return [...racks];
  }
  return racks
    .map(rack => ({
      ...rack,
      nodes: rack.nodes.filter(tree =>
        wanted.every(word => isFound(tree, word))
      )
    }))
    .filter(rack => rack.nodes.length > 0);
}

/** "#12" is job 12 alone, not job 120. */
function isFound(tree: INodeTree, word: string): boolean {
  if (/^#\d+$/.test(word)) {
    return tree.boxes.some(box => `#${box.gpu.job_number}` === word);
  }
  return tree.words.includes(word);
}

// ---- the GPUs of a node

const lines = new WeakMap<INodeTree, readonly (readonly ISocket[])[]>();

/**
 * The sockets of a node in lines of at most GPUS_PER_LINE. Sockets stay whole where they can, else switches do.
 * A node without GPUs has one empty line.
 */
export function gpuLines(tree: INodeTree): readonly (readonly ISocket[])[] {
  let found = lines.get(tree);
  if (!found) {
    found = makeLines(tree);
    lines.set(tree, found);
  }
  return found;
}

function makeLines(tree: INodeTree): ISocket[][] {
  const made: ISocket[][] = [[]];
  let room = GPUS_PER_LINE;
  const place = (socket: ISocket): void => {
    const size = sizeOf(socket);
    if (size > room && room < GPUS_PER_LINE) {
      made.push([]);
      room = GPUS_PER_LINE;
    }
    made[made.length - 1].push(socket);
    room -= size;
  };
  for (const socket of tree.sockets) {
    pieces(socket).forEach(place);
  }
  return made;
}

/** A socket as it fits on lines: whole, or what fits of it, cut between switches if one switch is not too many already. */
function pieces(socket: ISocket): ISocket[] {
  if (sizeOf(socket) <= GPUS_PER_LINE) {
    return [socket];
  }
  const parts: { number: number; boxes: readonly IGpuBox[] }[][] = [[]];
  let room = GPUS_PER_LINE;
  for (const { number, boxes } of socket.switches) {
    for (let at = 0; at < boxes.length; at += GPUS_PER_LINE) {
      const part = boxes.slice(at, at + GPUS_PER_LINE);
      if (part.length > room) {
        parts.push([]);
        room = GPUS_PER_LINE;
      }
      parts[parts.length - 1].push({ number, boxes: part });
      room -= part.length;
    }
  }
  return parts.map(switches => ({ number: socket.number, switches }));
}

function sizeOf(socket: ISocket): number {
  return socket.switches.reduce((sum, { boxes }) => sum + boxes.length, 0);
}

/** Pixels between GPUs of a switch, switches of a socket, and sockets, where GPUs are small squares. */
export const GAPS = { gpu: 2, switch: 5, socket: 9 } as const;

/** The width in pixels of the longest line, of squares of this size: so much room every node gives to its GPUs. */
export function widestLine(grid: readonly Row[], square: number): number {
  let widest = 0;
  for (const row of grid) {
    for (const tree of row.kind === 'nodes' ? row.nodes : []) {
      widest = Math.max(
        widest,
        ...gpuLines(tree).map(sockets => lineWidth(sockets, square))
      );
    }
  }
  return widest;
}

function lineWidth(sockets: readonly ISocket[], square: number): number {
  const gpus = sockets.reduce((sum, socket) => sum + sizeOf(socket), 0);
  const switches = sockets.reduce((sum, one) => sum + one.switches.length, 0);
  return (
    gpus * square +
    (gpus - switches) * GAPS.gpu +
    (switches - sockets.length) * GAPS.switch +
    Math.max(sockets.length - 1, 0) * GAPS.socket
  );
}

// ---- where a key leads

/** A place in the grid: a node, and one of its GPUs by place in `boxes`; -1 is the node itself. */
export interface IPlace {
  readonly node: string;
  readonly box: number;
}

/** The place to which a key leads from another; null where it leads nowhere, or is no key of the grid. */
export function moved(
  grid: readonly Row[],
  from: IPlace,
  key: string,
  withControl: boolean
): IPlace | null {
  const order = grid.flatMap(row => (row.kind === 'nodes' ? row.nodes : []));
  const at = order.findIndex(tree => tree.node.name === from.node);
  if (at < 0) {
    return null;
  }
  const last = order[at].boxes.length - 1;
  const to = (tree: INodeTree | undefined, box: number): IPlace | null =>
    tree
      ? { node: tree.node.name, box: Math.min(box, tree.boxes.length - 1) }
      : null;
  switch (key) {
    case 'ArrowRight':
      return from.box < last
        ? { ...from, box: from.box + 1 }
        : to(order[at + 1], -1);
    case 'ArrowLeft':
      return from.box >= 0
        ? { ...from, box: from.box - 1 }
        : to(order[at - 1], Infinity);
    case 'ArrowDown':
      return to(beside(grid, order[at], 1), from.box);
    case 'ArrowUp':
      return to(beside(grid, order[at], -1), from.box);
    case 'PageDown':
      return to(beside(grid, order[at], PAGE_ROWS), from.box);
    case 'PageUp':
      return to(beside(grid, order[at], -PAGE_ROWS), from.box);
    case 'Home':
      return withControl ? to(order[0], -1) : to(order[at], -1);
    case 'End':
      return to(withControl ? order[order.length - 1] : order[at], Infinity);
    default:
      return null;
  }
}

const PAGE_ROWS = 8;

/** The node so many rows of nodes below; at the ends the farthest. */
function beside(
  grid: readonly Row[],
  tree: INodeTree,
  by: number
): INodeTree | undefined {
  const ofNodes = grid.flatMap(row =>
    row.kind === 'nodes' ? [row.nodes] : []
  );
  const at = ofNodes.findIndex(nodes => nodes.includes(tree));
  const next = Math.min(Math.max(at + by, 0), ofNodes.length - 1);
  const column = ofNodes[at].indexOf(tree);
  return next === at
    ? undefined
    : ofNodes[next][Math.min(column, ofNodes[next].length - 1)];
}
