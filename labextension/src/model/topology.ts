/**
 * The cluster as a tree, rack ⊃ node ⊃ socket ⊃ switch ⊃ GPU, with what each GPU is to the caller and what is free in one piece.
 *
 * Pure. The tree of a node is made once for each view of it, so that of a thousand nodes only those that changed are made anew.
 */
import { GpuView, NodeView } from '../api/schemas';
import { grouped } from './grouped';
import {
  freeOf,
  freePieces,
  freePiecesByType,
  IFreePieces,
  nodePieces,
  nodePiecesByType
} from './topologyFree';

/**
 * What a GPU is to the caller.
 *
 * mine, others: held by a job that may be known · occupied: by somebody's job · foreign: in use by a program that is no job ·
 * bad: out of order · closed: idle on a node that takes nothing new · free: could be given out now.
 */
export const GPU_KINDS = [
  'free',
  'mine',
  'others',
  'occupied',
  'foreign',
  'bad',
  'closed'
] as const;
export type GpuKind = (typeof GPU_KINDS)[number];
export type Counts = Readonly<Record<GpuKind, number>>;

/** So many jobs have colours of their own; style/topology.css has as many. */
export const JOB_COLORS = 12;
/** A GPU that is in use and less busy than this is idle. */
export const IDLE_BELOW_PERCENT = 5;
/** From which utilisation on a GPU counts to the next step of the legend. */
export const BUSY_STEPS_PERCENT = [0, IDLE_BELOW_PERCENT, 35, 70] as const;

export interface IGpuBox {
  readonly gpu: GpuView;
  readonly kind: GpuKind;
  /** Place of its NVLink island in `INodeTree.islands`; -1 = in none. */
  readonly island: number;
}

/** GPUs below one switch, and switches of one socket; `number` as the node counts them. */
export interface ISwitch {
  readonly number: number;
  readonly boxes: readonly IGpuBox[];
}
export interface ISocket {
  readonly number: number;
  readonly switches: readonly ISwitch[];
}

/** GPUs of a node that NVLink joins. */
export interface IIsland {
  readonly number: number;
  readonly gpus: number;
  readonly free: number;
}

export interface INodeTree {
  readonly node: NodeView;
  readonly sockets: readonly ISocket[];
  /** All GPUs, by socket, switch and index: the order in which they stand. */
  readonly boxes: readonly IGpuBox[];
  readonly islands: readonly IIsland[];
  /** GPUs of an island do not stand side by side. */
  readonly isInterleaved: boolean;
  readonly counts: Counts;
  /** What is free in one piece on this node, of all GPUs and of each type alone. */
  readonly free: IFreePieces;
  readonly freeByType: ReadonlyMap<string, IFreePieces>;
  readonly jobs: readonly IJobOnGpus[];
  readonly usage: IUsage;
  readonly simulatedGpus: number;
  /** What the filter looks at, in lower case. */
  readonly words: string;
}

export interface IRack {
  readonly name: string;
  readonly nodes: readonly INodeTree[];
  readonly counts: Counts;
}

export interface ITopology {
  readonly racks: readonly IRack[];
  readonly byName: ReadonlyMap<string, INodeTree>;
  readonly nodes: number;
  readonly gpus: number;
  readonly counts: Counts;
  readonly free: IFreePieces;
  /** The same of each GPU type alone, types by name. */
  readonly freeByType: ReadonlyMap<string, IFreePieces>;
  /** Jobs on the GPUs that the caller may know of, mine first, then by number. */
  readonly jobs: readonly IJobOnGpus[];
  readonly usage: IUsage;
  readonly simulatedGpus: number;
}

export interface IJobOnGpus {
  readonly number: number;
  readonly name: string;
  readonly id: string | null;
  readonly mine: boolean;
  readonly gpus: number;
  readonly nodes: number;
}

export interface IUsage {
  /** GPUs in use by step of BUSY_STEPS_PERCENT; the first are idle. */
  readonly steps: readonly number[];
  /** Measured and in use by nobody. */
  readonly unused: number;
  readonly notMeasured: number;
}

const names = new Intl.Collator(undefined, { numeric: true });

export function gpuKind(node: NodeView, gpu: GpuView): GpuKind {
  if (gpu.health === 'bad') {
    return 'bad';
  }
  if (gpu.mine) {
    return 'mine';
  }
  if (gpu.job_number !== null) {
    return 'others';
  }
  if (gpu.health === 'foreign') {
    return 'foreign';
  }
  if (gpu.occupied) {
    return 'occupied';
  }
  return isOpen(node) ? 'free' : 'closed';
}

/** Whether a node takes something new. */
export function isOpen(node: NodeView): boolean {
  return node.health === 'ready';
}

/** A node that takes nothing new while jobs on it go on. */
export function isDraining(tree: INodeTree): boolean {
  return tree.node.health === 'cordoned' && held(tree.counts) > 0;
}

/** GPUs that jobs hold, whoever's they are. */
export function held(counts: Counts): number {
  return counts.mine + counts.others + counts.occupied;
}

/** The colour of a job, the same in every view: a variable of style/topology.css. */
export function jobColor(number: number): string {
  return `var(--jp-gpucluster-job-${number % JOB_COLORS})`;
}

/** The step of BUSY_STEPS_PERCENT to which a utilisation belongs. */
export function busyStep(percent: number): number {
  return BUSY_STEPS_PERCENT.filter(from => percent >= from).length - 1;
}

// ---- one node

const trees = new WeakMap<NodeView, INodeTree>();

export function nodeTree(node: NodeView): INodeTree {
  let tree = trees.get(node);
  if (!tree) {
    tree = makeNodeTree(node);
    trees.set(node, tree);
  }
  return tree;
}

function makeNodeTree(node: NodeView): INodeTree {
  const gpus = [...node.gpus].sort(
    (one, other) =>
      one.socket - other.socket ||
      one.switch - other.switch ||
      one.index - other.index
  );
  const numbers = islandNumbers(gpus);
  const boxes = gpus.map(gpu => ({
    gpu,
    kind: gpuKind(node, gpu),
    island: gpu.nvlink_island === null ? -1 : numbers.indexOf(gpu.nvlink_island)
  }));
  const counts = count(boxes);
  return {
    node,
    sockets: sockets(boxes),
    boxes,
    islands: numbers.map((number, place) => {
      const members = boxes.filter(box => box.island === place);
      return { number, gpus: members.length, free: freeOf(members) };
    }),
    isInterleaved: isInterleaved(boxes),
    counts,
    free: nodePieces(boxes),
    freeByType: nodePiecesByType(boxes),
    jobs: jobsOnNode(gpus),
    usage: usageOf(gpus),
    simulatedGpus: gpus.filter(gpu => gpu.simulated).length,
    words: words(node, counts)
  };
}

/** In the order in which they stand. */
function islandNumbers(gpus: readonly GpuView[]): number[] {
  const numbers = new Set<number>();
  for (const gpu of gpus) {
    if (gpu.nvlink_island !== null) {
      numbers.add(gpu.nvlink_island);
    }
  }
  return [...numbers];
}

function sockets(boxes: readonly IGpuBox[]): ISocket[] {
  return grouped(boxes, box => box.gpu.socket).map(([number, ofSocket]) => ({
    number,
    switches: grouped(ofSocket, box => box.gpu.switch).map(
      ([ofSwitch, members]) => ({ number: ofSwitch, boxes: members })
    )
  }));
}

function isInterleaved(boxes: readonly IGpuBox[]): boolean {
  const starts = boxes.filter(
    (box, at) => box.island >= 0 && boxes[at - 1]?.island !== box.island
  );
  return new Set(starts.map(box => box.island)).size < starts.length;
}

/** What the filter finds a node by; `free`, `mine`, `bad` … find nodes that have such a GPU. */
function words(node: NodeView, counts: Counts): string {
  const found = new Set<string>([node.name, node.rack, node.health]);
  for (const gpu of node.gpus) {
    found.add(gpu.type);
    if (gpu.job_number !== null) {
      found.add(`#${gpu.job_number} ${gpu.job_name ?? ''}`);
    }
  }
  GPU_KINDS.filter(kind => counts[kind] > 0).forEach(kind => found.add(kind));
  if (node.simulated) {
    found.add('simulated');
  }
  return [...found].join('\n').toLowerCase();
}

function count(boxes: readonly IGpuBox[]): Counts {
  const counts = noCounts();
  for (const box of boxes) {
    counts[box.kind] += 1;
  }
  return counts;
}

function noCounts(): Record<GpuKind, number> {
  return {
    free: 0,
    mine: 0,
    others: 0,
    occupied: 0,
    foreign: 0,
    bad: 0,
    closed: 0
  };
}

// ---- the cluster

/** Cheap enough for every change of a large cluster: what is reckoned of a node stands in its tree. */
export function topology(nodes: readonly NodeView[]): ITopology {
  const all = nodes
    .map(nodeTree)
    .sort((one, other) => names.compare(one.node.name, other.node.name));
  const racks = grouped(all, tree => tree.node.rack)
    .map(([name, members]) => ({
      name,
      nodes: members,
      counts: sum(members.map(tree => tree.counts))
    }))
    .sort((one, other) => names.compare(one.name, other.name));
  return {
    racks,
    byName: new Map(all.map(tree => [tree.node.name, tree])),
    nodes: all.length,
    gpus: all.reduce((total, tree) => total + tree.boxes.length, 0),
    counts: sum(racks.map(rack => rack.counts)),
    free: freePieces(racks),
    freeByType: freePiecesByType(racks),
    jobs: jobsTogether(all),
    usage: usageTogether(all),
    simulatedGpus: all.reduce((sum, tree) => sum + tree.simulatedGpus, 0)
  };
}

function sum(parts: readonly Counts[]): Counts {
  const total = noCounts();
  for (const part of parts) {
    GPU_KINDS.forEach(kind => (total[kind] += part[kind]));
  }
  return total;
}

/** Jobs that the caller may know of, by what stands on the GPUs. */
function jobsTogether(all: readonly INodeTree[]): IJobOnGpus[] {
  const jobs = new Map<number, IJobOnGpus>();
  for (const tree of all) {
    for (const job of tree.jobs) {
      const before = jobs.get(job.number);
      jobs.set(
        job.number,
        before
          ? { ...before, gpus: before.gpus + job.gpus, nodes: before.nodes + 1 }
          : job
      );
    }
  }
  return [...jobs.values()].sort(
    (one, other) =>
      Number(other.mine) - Number(one.mine) || one.number - other.number
  );
}

function jobsOnNode(gpus: readonly GpuView[]): IJobOnGpus[] {
  return grouped(
    gpus.filter(gpu => gpu.job_number !== null),
    gpu => gpu.job_number!
  ).map(([number, [gpu, ...others]]) => ({
    number,
    name: gpu.job_name ?? '',
    id: gpu.job_id,
    mine: gpu.mine,
    gpus: 1 + others.length,
    nodes: 1
  }));
}

function usageTogether(all: readonly INodeTree[]): IUsage {
  const total = noUsage();
  for (const { usage } of all) {
    usage.steps.forEach((count, step) => (total.steps[step] += count));
    total.unused += usage.unused;
    total.notMeasured += usage.notMeasured;
  }
  return total;
}

function usageOf(gpus: readonly GpuView[]): IUsage {
  const usage = noUsage();
  for (const gpu of gpus) {
    if (gpu.utilization_percent === null) {
      usage.notMeasured += 1;
    } else if (isInUse(gpu)) {
      usage.steps[busyStep(gpu.utilization_percent)] += 1;
    } else {
      usage.unused += 1;
    }
  }
  return usage;
}

function noUsage(): { steps: number[]; unused: number; notMeasured: number } {
  return {
    steps: BUSY_STEPS_PERCENT.map(() => 0),
    unused: 0,
    notMeasured: 0
  };
}

/** Somebody has it: a job, or a program that is none. */
export function isInUse(gpu: GpuView): boolean {
  return gpu.mine || gpu.job_number !== null || gpu.occupied;
}

/** Somebody has it and does nothing with it. */
export function isIdle(gpu: GpuView): boolean {
  return (
    gpu.utilization_percent !== null &&
    gpu.utilization_percent < IDLE_BELOW_PERCENT &&
    isInUse(gpu)
  );
}
