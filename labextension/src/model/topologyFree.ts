/** What is free in one piece: what a gang that wants to sit together could get. Pure. */
import { grouped } from './grouped';
import type { IGpuBox, INodeTree, IRack } from './topology';

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

type Level = 'rack' | 'node' | 'socket' | 'switch' | 'island';

export function freePieces(
  racks: readonly IRack[],
  isCounted: (box: IGpuBox) => boolean = () => true
): IFreePieces {
  const most = { rack: 0, node: 0, socket: 0, switch: 0, island: null };
  const pieces = { gpus: 0, free: 0, ...most } as {
    -readonly [key in keyof IFreePieces]: IFreePieces[key];
  };
  const offer = (level: Level, free: number): void => {
    pieces[level] = Math.max(pieces[level] ?? 0, free);
  };
  for (const rack of racks) {
    let ofRack = 0;
    for (const tree of rack.nodes) {
      const boxes = tree.boxes.filter(isCounted);
      const ofNode = freeOf(boxes);
      pieces.gpus += boxes.length;
      ofRack += ofNode;
      offer('node', ofNode);
      offerWithin(tree, boxes, offer);
    }
    pieces.free += ofRack;
    offer('rack', ofRack);
  }
  return pieces;
}

function offerWithin(
  tree: INodeTree,
  boxes: readonly IGpuBox[],
  offer: (level: Level, free: number) => void
): void {
  for (const [, group] of grouped(boxes, box => box.gpu.socket)) {
    offer('socket', freeOf(group));
  }
  for (const [, group] of grouped(boxes, box => box.gpu.switch)) {
    offer('switch', freeOf(group));
  }
  for (const [island, group] of grouped(boxes, box => box.island)) {
    if (island >= 0) {
      offer('island', freeOf(group));
    }
  }
}

export function freePiecesByType(
  racks: readonly IRack[]
): Map<string, IFreePieces> {
  const types = new Set<string>();
  for (const rack of racks) {
    for (const tree of rack.nodes) {
      tree.boxes.forEach(box => types.add(box.gpu.type));
    }
  }
  return new Map(
    [...types]
      .sort()
      .map(type => [type, freePieces(racks, box => box.gpu.type === type)])
  );
}

export function freeOf(boxes: readonly IGpuBox[]): number {
  return boxes.filter(box => box.kind === 'free').length;
}
