/** What is free in one piece: what a gang that wants to sit together could get. Pure. */
import { grouped } from './grouped';
import type { IGpuBox, IRack, INodeTree } from './topology';

/** Of a set of GPUs how many are free, and how many at most within one topology cell of each level. */
export interface IFreePieces {
  readonly gpus: number;
  readonly free: number;
  readonly rack: number;
  readonly node: number;
  readonly socket: number;
  readonly switch: number;
  /** Within one NVLink island; null where no GPU is in one. */
  readonly island: number | null;
}

const NOTHING: IFreePieces = {
  gpus: 0,
  free: 0,
  rack: 0,
  node: 0,
  socket: 0,
  switch: 0,
  island: null
};

/** Of GPUs of one node. */
export function nodePieces(boxes: readonly IGpuBox[]): IFreePieces {
  const free = freeOf(boxes);
  const linked = boxes.filter(box => box.island >= 0);
  return {
    gpus: boxes.length,
    free,
    rack: free,
    node: free,
    socket: mostFree(boxes, box => box.gpu.socket),
    switch: mostFree(boxes, box => box.gpu.switch),
    island: linked.length ? mostFree(linked, box => box.island) : null
  };
}

/** The same of each GPU type alone. */
export function nodePiecesByType(
  boxes: readonly IGpuBox[]
): Map<string, IFreePieces> {
  return new Map(
    grouped(boxes, box => box.gpu.type).map(([type, members]) => [
      type,
      nodePieces(members)
    ])
  );
}

function mostFree(
  boxes: readonly IGpuBox[],
  cell: (box: IGpuBox) => number
): number {
  return Math.max(
    0,
    ...grouped(boxes, cell).map(([, members]) => freeOf(members))
  );
}

export function freeOf(boxes: readonly IGpuBox[]): number {
  return boxes.filter(box => box.kind === 'free').length;
}

/** Of a cluster, from what is `known` of each node. */
export function freePieces(
  racks: readonly IRack[],
  known: (tree: INodeTree) => IFreePieces | undefined = tree => tree.free
): IFreePieces {
  return racks
    .map(rack =>
      rack.nodes.map(tree => known(tree) ?? NOTHING).reduce(together, NOTHING)
    )
    .map(ofRack => ({ ...ofRack, rack: ofRack.free }))
    .reduce(together, NOTHING);
}

/** The same of each GPU type alone, types by name. */
export function freePiecesByType(
  racks: readonly IRack[]
): Map<string, IFreePieces> {
  const types = new Set<string>();
  for (const rack of racks) {
    for (const tree of rack.nodes) {
      [...tree.freeByType.keys()].forEach(type => types.add(type));
    }
  }
  return new Map(
    [...types]
      .sort()
      .map(type => [type, freePieces(racks, tree => tree.freeByType.get(type))])
  );
}

function together(one: IFreePieces, other: IFreePieces): IFreePieces {
  return {
    gpus: one.gpus + other.gpus,
    free: one.free + other.free,
    rack: Math.max(one.rack, other.rack),
    node: Math.max(one.node, other.node),
    socket: Math.max(one.socket, other.socket),
    switch: Math.max(one.switch, other.switch),
    island:
      one.island === null || other.island === null
        ? (one.island ?? other.island)
        : Math.max(one.island, other.island)
  };
}
