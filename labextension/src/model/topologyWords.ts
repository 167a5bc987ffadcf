/** The topology in words: what the pointer and a screen reader are told of a GPU, a node, and of what is free. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { GpuView, JobView, NodeView } from '../api/schemas';
import { grouped } from './grouped';
import {
  BUSY_STEPS_PERCENT,
  GpuKind,
  IGpuBox,
  IIsland,
  INodeTree,
  isDraining,
  isIdle,
  isOpen
} from './topology';
import { IFreePieces } from './topologyFree';
import { jobTitle, joined, size, stateLabel, zonedTime } from './words';

const MILLI = 1000; // amounts of CPU are thousandths

/** How the cluster calls its levels. */
export interface ILevels {
  readonly rack: string;
  readonly node: string;
  readonly socket: string;
  readonly switch: string;
}

/** From the levels of the cluster, from the largest to the smallest: cluster, rack, node, socket, switch, GPU. */
export function levels(
  named: readonly string[] | undefined,
  trans: TranslationBundle
): ILevels {
  // What was not renamed is translated; another name is the administrator's own.
  const word = (place: number, usual: string, translated: string): string =>
    named?.[place] === undefined || named[place] === usual
      ? translated
      : named[place];
  return {
    rack: word(1, 'rack', trans.__('rack')),
    node: word(2, 'node', trans.__('node')),
    socket: word(3, 'socket', trans.__('socket')),
    switch: word(4, 'switch', trans.__('switch'))
  };
}

/** "rack-0" and "row 7": the level stands before a name that does not say it. */
export function rackText(name: string, level: string): string {
  return name.toLowerCase().startsWith(level.toLowerCase())
    ? name
    : `${level} ${name}`;
}

/** A size without a fraction where there is none: "80 GiB". */
export function memory(bytes: number): string {
  return size(bytes).replace(/\.0 /, ' ');
}

/** "41 of 80 GiB"; "512 MiB of 80 GiB". */
export function memoryOf(
  used: number,
  all: number,
  trans: TranslationBundle
): string {
  const [amount, unit] = memory(used).split(' ');
  const whole = memory(all);
  return whole.endsWith(` ${unit}`)
    ? trans.__('%1 of %2', amount, whole)
    : trans.__('%1 of %2', memory(used), whole);
}

/** "41/80 GiB", in the unit of the whole. */
export function memoryShort(used: number, all: number): string {
  const [whole, unit] = memory(all).split(' ');
  const share = (used / all) * Number(whole);
  return `${share >= 10 || share === 0 ? Math.round(share) : share.toFixed(1)}/${whole} ${unit}`;
}

// ---- a GPU

/** What a GPU is, in one word. */
export function kindLabel(kind: GpuKind, trans: TranslationBundle): string {
  switch (kind) {
    case 'free':
      return trans.__('free');
    case 'mine':
      return trans.__('mine');
    case 'others':
      return trans.__('others’');
    case 'occupied':
      return trans.__('occupied');
    case 'foreign':
      return trans.__('foreign');
    case 'bad':
      return trans.__('bad');
    case 'closed':
      return trans.__('closed');
  }
}

/** What a kind means, in a sentence. */
export function kindMeaning(kind: GpuKind, trans: TranslationBundle): string {
  switch (kind) {
    case 'free':
      return trans.__('Could be given to a job now.');
    case 'mine':
      return trans.__('Held by a job of yours.');
    case 'others':
      return trans.__('Held by a job of somebody else that you may see.');
    case 'occupied':
      return trans.__('Held by a job that you may not see.');
    case 'foreign':
      return trans.__(
        'In use by a program that is no job of this cluster, so not given out.'
      );
    case 'bad':
      return trans.__('Not given out: it has a fault, or was taken out.');
    case 'closed':
      return trans.__(
        'Idle, but its node is cordoned or lost and takes nothing new.'
      );
  }
}

/** What a text is about, and all that there is to say about it. */
export interface ITitled {
  readonly title: string;
  readonly rest: string;
}

/** All about a GPU. `job`: the view of the job on it, where the page has it. */
export function gpuText(
  tree: INodeTree,
  box: IGpuBox,
  names: ILevels,
  trans: TranslationBundle,
  job?: JobView
): string {
  const { title, rest } = gpuTitled(tree, box, names, trans, job);
  return joined([title, rest]);
}

/** The same, with the name of the GPU apart. */
export function gpuTitled(
  tree: INodeTree,
  box: IGpuBox,
  names: ILevels,
  trans: TranslationBundle,
  job?: JobView
): ITitled {
  const { gpu } = box;
  const title = trans.__('%1 GPU %2', tree.node.name, gpu.index);
  const rest = joined([
    joined(
      [
        gpu.type,
        memory(gpu.memory_bytes),
        gpu.simulated ? trans.__('(simulated)') : ''
      ],
      ' '
    ),
    placeText(tree, box, names, trans),
    holderText(box, trans, job),
    usageText(gpu, trans),
    isOpen(tree.node) ? '' : healthText(tree, trans)
  ]);
  return { title, rest };
}

function placeText(
  tree: INodeTree,
  { gpu, island }: IGpuBox,
  names: ILevels,
  trans: TranslationBundle
): string {
  return joined(
    [
      `${names.socket} ${gpu.socket}`,
      `${names.switch} ${gpu.switch}`,
      island < 0
        ? ''
        : trans.__('NVLink island %1', tree.islands[island].number)
    ],
    ', '
  );
}

function holderText(
  { gpu, kind }: IGpuBox,
  trans: TranslationBundle,
  job: JobView | undefined
): string {
  const trouble =
    gpu.health === 'ok'
      ? ''
      : joined(
          [
            gpu.health === 'bad'
              ? trans.__('out of order')
              : trans.__('used outside the cluster'),
            gpu.note ?? ''
          ],
          ': '
        );
  return joined([heldBy(gpu, kind, trans, job), trouble]);
}

function heldBy(
  gpu: GpuView,
  kind: GpuKind,
  trans: TranslationBundle,
  job: JobView | undefined
): string {
  if (gpu.job_number !== null) {
    const title = jobTitle(
      { number: gpu.job_number, name: gpu.job_name ?? '' },
      trans
    );
    const owner = gpu.mine ? trans.__('you') : job?.owner_name;
    return owner ? trans.__('%1 (%2)', title, owner) : title;
  }
  switch (kind) {
    case 'free':
      return trans.__('free');
    case 'closed':
      return trans.__('idle');
    case 'occupied':
      return trans.__('held by somebody’s job');
    default:
      return gpu.occupied && gpu.health !== 'foreign'
        ? trans.__('held by somebody’s job')
        : '';
  }
}

export function usageText(gpu: GpuView, trans: TranslationBundle): string {
  if (gpu.utilization_percent === null) {
    return gpu.memory_used_bytes === null
      ? trans.__('utilisation not measured')
      : joined([
          trans.__('utilisation not measured'),
          memoryOf(gpu.memory_used_bytes, gpu.memory_bytes, trans)
        ]);
  }
  return joined([
    isIdle(gpu)
      ? trans.__('utilisation %1 %: idle', gpu.utilization_percent)
      : trans.__('utilisation %1 %', gpu.utilization_percent),
    gpu.memory_used_bytes === null
      ? ''
      : memoryOf(gpu.memory_used_bytes, gpu.memory_bytes, trans)
  ]);
}

/** The steps of utilisation of what is in use, as the legend has them: "idle (below 5 %)", "5–34 %" … */
export function busyStepLabel(step: number, trans: TranslationBundle): string {
  const from = BUSY_STEPS_PERCENT[step];
  const next = BUSY_STEPS_PERCENT[step + 1];
  if (step === 0) {
    return trans.__('idle (below %1 %)', next);
  }
  return next === undefined
    ? trans.__('from %1 %', from)
    : trans.__('%1–%2 %', from, next - 1);
}

// ---- a node

/** How a node stands, in one word; "" when it is ready. */
export function healthLabel(node: NodeView, trans: TranslationBundle): string {
  switch (node.health) {
    case 'ready':
      return '';
    case 'cordoned':
      return trans.__('cordoned');
    case 'lost':
      return trans.__('lost');
    default:
      return node.health;
  }
}

/** "cordoned by ada: new fans; its jobs go on", "lost". */
export function healthText(tree: INodeTree, trans: TranslationBundle): string {
  const { node } = tree;
  const word = healthLabel(node, trans);
  if (!word) {
    return '';
  }
  const by = node.set_by ? trans.__('%1 by %2', word, node.set_by) : word;
  return joined(
    [
      joined([by, node.set_reason ?? ''], ': '),
      isDraining(tree) ? trans.__('its jobs go on') : ''
    ],
    '; '
  );
}

/** What there is to say about a node beyond its GPUs. */
export function nodeNotes(tree: INodeTree, trans: TranslationBundle): string[] {
  const { node } = tree;
  // The first note says in UTC what set_by, set_reason and set_us say: told here in the reader's own words and time.
  const others = node.set_by ? node.notes.slice(1) : node.notes;
  return [healthText(tree, trans), ...others].filter(Boolean);
}

/** Since when a node is as an administrator set it, with the zone. */
export function setSince(node: NodeView, trans: TranslationBundle): string {
  return node.set_us === null
    ? ''
    : trans.__('since %1', zonedTime(node.set_us));
}

/** "8 × A100 80 GiB", by type. */
export function gpuTypes(tree: INodeTree): string {
  return grouped(
    tree.node.gpus,
    gpu => `${gpu.type} ${memory(gpu.memory_bytes)}`
  )
    .map(([type, gpus]) => `${gpus.length} × ${type}`)
    .join(', ');
}

/** "3 of 8 GPUs free" */
export function gpusFreeText(
  free: number,
  all: number,
  trans: TranslationBundle
): string {
  return trans.__('%1 of %2 free', free, trans._n('%1 GPU', '%1 GPUs', all));
}

/** "3 of 8 free", where it is clear what of. */
export function freeText(
  free: number,
  all: number,
  trans: TranslationBundle
): string {
  return trans.__('%1 of %2 free', free, all);
}

/** "NVLink island 0: 3 of 4 free" */
export function islandText(island: IIsland, trans: TranslationBundle): string {
  return joined(
    [
      trans.__('NVLink island %1', island.number),
      freeText(island.free, island.gpus, trans)
    ],
    ': '
  );
}

/** All about a node. */
export function nodeText(
  tree: INodeTree,
  names: ILevels,
  trans: TranslationBundle
): string {
  const { title, rest } = nodeTitled(tree, names, trans);
  return joined([title, rest]);
}

/** The same, with the name of the node apart. */
export function nodeTitled(
  tree: INodeTree,
  names: ILevels,
  trans: TranslationBundle
): ITitled {
  const { node } = tree;
  const cpus = node.capacity.cpu;
  const bytes = node.capacity.memory;
  const rest = joined([
    rackText(node.rack, names.rack),
    joined(
      [
        gpuTypes(tree) || trans.__('no GPUs'),
        node.simulated ? trans.__('(simulated)') : ''
      ],
      ' '
    ),
    tree.boxes.length
      ? freeText(tree.counts.free, tree.boxes.length, trans)
      : '',
    ...tree.islands.map(island => islandText(island, trans)),
    cpus
      ? trans.__(
          '%1 of %2 cores in use',
          Math.round((node.used.cpu ?? 0) / MILLI),
          Math.round(cpus / MILLI)
        )
      : '',
    bytes
      ? trans.__(
          'memory %1 in use',
          memoryOf(node.used.memory ?? 0, bytes, trans)
        )
      : '',
    ...nodeNotes(tree, trans)
  ]);
  return { title: node.name, rest };
}

// ---- a job

/** A job that is shown up: "job 12 train (you) · 8 GPUs on 1 node · running". */
export function pinnedText(
  onGpus: {
    number: number;
    name: string;
    mine: boolean;
    gpus: number;
    nodes: number;
  },
  job: JobView | undefined,
  trans: TranslationBundle
): string {
  const title = jobTitle(onGpus, trans);
  const owner = onGpus.mine ? trans.__('you') : job?.owner_name;
  return joined([
    owner ? trans.__('%1 (%2)', title, owner) : title,
    trans.__(
      '%1 on %2',
      trans._n('%1 GPU', '%1 GPUs', onGpus.gpus),
      trans._n('%1 node', '%1 nodes', onGpus.nodes)
    ),
    job ? stateLabel(job.state, trans) : ''
  ]);
}

// ---- what is free

/** What could be had in one piece: "island 4 · node 8". */
export function largestText(
  free: IFreePieces,
  names: ILevels,
  trans: TranslationBundle
): string {
  return joined([
    free.island === null ? '' : trans.__('NVLink island %1', free.island),
    `${names.node} ${free.node}`
  ]);
}

/** The same by all levels, in a sentence. */
export function largestSentence(
  free: IFreePieces,
  names: ILevels,
  trans: TranslationBundle
): string {
  const parts = [
    `${names.switch} ${free.switch}`,
    `${names.socket} ${free.socket}`,
    free.island === null ? '' : trans.__('NVLink island %1', free.island),
    `${names.node} ${free.node}`,
    `${names.rack} ${free.rack}`,
    trans.__('in all %1', free.free)
  ];
  return trans.__('Most free GPUs within one: %1', joined(parts, ', '));
}
