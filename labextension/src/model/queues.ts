/** What the queue tree shows: rows in the order of the tree, each with one bar, and its figures in words. */
import { TranslationBundle } from '@jupyterlab/translation';

import { QueueView } from '../api/schemas';
import { joined } from './words';

/** Amounts of GPUs on the wire are thousandths. */
const MILLI = 1000;
const GPU = 'gpu';
const TYPED = `${GPU}/`;

/**
 * One bar, as fractions of its length: [0, within] is used within the guarantee, [within, used] is borrowed.
 * The length is the most that the queue may have: the lowest maximum on its path, or all of the cluster.
 */
export interface IQueueBar {
  within: number;
  used: number;
  /** Where the guarantee ends; null without one. */
  guaranteed: number | null;
  /** What the caller's own jobs hold. */
  mine: number;
}

/** The figures of a queue in GPUs of all types, or of one type; in thousandths. */
export interface IGpuFigures {
  used: number;
  guaranteed: number;
  borrowed: number;
  mine: number;
  freeForGood: number;
  freeUntilReclaimed: number;
  lentOut: number;
  /** The most that it may have. */
  most: number;
  /** Whether a maximum says so, rather than the size of the cluster. */
  hasMaximum: boolean;
}

export interface IQueueRow {
  queue: QueueView;
  /** 1 for the outermost queues. */
  level: number;
  /** Place among its siblings, from 1, and how many they are. */
  place: number;
  siblings: number;
  hasChildren: boolean;
  figures: IGpuFigures;
  /** The same by GPU type, of those that concern the queue; empty where the cluster has one type only. */
  types: [string, IGpuFigures][];
  /** Whether the caller may submit to it, or to a queue below it. */
  maySubmit: boolean;
}

/**
 * All queues, parents before their children, in the order in which they came. The root says no more than the cluster's
 * own figures do: it is left out where it has children. `closed`: names of queues whose children are not shown.
 */
export function queueRows(
  queues: readonly QueueView[],
  closed: ReadonlySet<string>,
  clusterGpus: number
): IQueueRow[] {
  const tree = new Tree(queues, clusterGpus);
  const rows: IQueueRow[] = [];
  const visit = (siblings: QueueView[], level: number) => {
    siblings.forEach((queue, at) => {
      const row = tree.row(queue, level, at + 1, siblings.length);
      rows.push(row);
      if (row.hasChildren && !closed.has(queue.name)) {
        visit(tree.children(queue.name), level + 1);
      }
    });
  };
  visit(tree.outermost(), 1);
  return rows;
}

/** The queues by name and parent, and what follows from that. */
class Tree {
  constructor(queues: readonly QueueView[], clusterGpus: number) {
    queues.forEach(queue => this.byName.set(queue.name, queue));
    for (const queue of queues) {
      const parent = this.parentOf(queue)?.name ?? null;
      this.below.set(parent, [...(this.below.get(parent) ?? []), queue]);
    }
    this.capacity = this.root()?.guaranteed ?? { [GPU]: clusterGpus * MILLI };
    const names = new Set(queues.flatMap(queue => resourcesOf(queue)));
    const types = [...names].filter(name => name.startsWith(TYPED)).sort();
    this.types = types.length > 1 ? types : [];
  }

  children(name: string): QueueView[] {
    return this.below.get(name) ?? [];
  }

  outermost(): QueueView[] {
    const tops = this.below.get(null) ?? [];
    return tops.flatMap(top =>
      this.root() === top && !top.is_leaf ? this.children(top.name) : [top]
    );
  }

  row(
    queue: QueueView,
    level: number,
    place: number,
    siblings: number
  ): IQueueRow {
    const own = new Set(resourcesOf(queue));
    return {
      queue,
      level,
      place,
      siblings,
      hasChildren: this.children(queue.name).length > 0,
      figures: this.figures(queue, GPU),
      types: this.types
        .filter(name => own.has(name))
        .map(name => [name.slice(TYPED.length), this.figures(queue, name)]),
      maySubmit: this.withBelow(queue).some(one => one.may_submit)
    };
  }

  private figures(queue: QueueView, resource: string): IGpuFigures {
    const maximum = this.tightestMaximum(queue, resource);
    const capacity = this.capacity[resource] ?? 0;
    return {
      used: queue.used[resource] ?? 0,
      guaranteed: queue.guaranteed[resource] ?? 0,
      borrowed: queue.borrowed[resource] ?? 0,
      mine: queue.mine[resource] ?? 0,
      freeForGood: queue.free_for_good[resource] ?? 0,
      freeUntilReclaimed: queue.free_until_reclaimed[resource] ?? 0,
      lentOut: queue.lent_out[resource] ?? 0,
      most: Math.min(maximum ?? capacity, capacity || Infinity),
      hasMaximum: maximum !== null && maximum < (capacity || Infinity)
    };
  }

  private tightestMaximum(queue: QueueView, resource: string): number | null {
    const above = this.parentOf(queue);
    const limits = [
      queue.max[resource],
      above ? this.tightestMaximum(above, resource) : null
    ].filter(limit => typeof limit === 'number');
    return limits.length ? Math.min(...limits) : null;
  }

  private root(): QueueView | undefined {
    const tops = this.below.get(null) ?? [];
    return tops.length === 1 ? tops[0] : undefined;
  }

  private parentOf(queue: QueueView): QueueView | undefined {
    return queue.parent === null ? undefined : this.byName.get(queue.parent);
  }

  private withBelow(queue: QueueView): QueueView[] {
    const below = this.children(queue.name);
    return [queue, ...below.flatMap(child => this.withBelow(child))];
  }

  private readonly byName = new Map<string, QueueView>();
  private readonly below = new Map<string | null, QueueView[]>();
  private readonly capacity: Record<string, number>;
  private readonly types: string[];
}

function resourcesOf(queue: QueueView): string[] {
  return [
    queue.used,
    queue.guaranteed,
    queue.max,
    queue.free_for_good,
    queue.free_until_reclaimed
  ].flatMap(amounts => Object.keys(amounts).filter(name => amounts[name] > 0));
}

/** Where the parts of the bar end. It is never empty of room: what is used above the maximum makes it longer. */
export function queueBar(figures: IGpuFigures): IQueueBar {
  const { used, guaranteed, borrowed, mine, most } = figures;
  const length = Math.max(most, used, guaranteed) || 1;
  return {
    within: Math.max(used - borrowed, 0) / length,
    used: used / length,
    guaranteed: guaranteed > 0 ? guaranteed / length : null,
    mine: Math.min(mine, used) / length
  };
}

/** Thousandths in GPUs, with at most two decimals: "3", "0.5", "0.33". What is there is never shown as nothing. */
export function gpuCount(milli: number): string {
  const rounded = Math.round(milli / 10) / 100;
  return milli > 0 && rounded === 0 ? '<0.01' : String(rounded);
}

/** "16 used of 10 guaranteed (6 borrowed)" */
export function usedText(
  figures: IGpuFigures,
  trans: TranslationBundle
): string {
  const used = gpuCount(figures.used);
  const guaranteed = gpuCount(figures.guaranteed);
  const borrowed = gpuCount(figures.borrowed);
  if (figures.guaranteed > 0) {
    return figures.borrowed > 0
      ? trans.__(
          '%1 used of %2 guaranteed (%3 borrowed)',
          used,
          guaranteed,
          borrowed
        )
      : trans.__('%1 used of %2 guaranteed', used, guaranteed);
  }
  if (figures.borrowed > 0) {
    return trans.__('%1 used, all borrowed', used);
  }
  return figures.used > 0
    ? trans.__('%1 used, no guarantee of its own', used)
    : trans.__('%1 used, nothing guaranteed', used);
}

/** Of one GPU type: a guarantee that names no type says nothing of it. */
export function typeUsedText(
  figures: IGpuFigures,
  trans: TranslationBundle
): string {
  return figures.guaranteed > 0
    ? usedText(figures, trans)
    : trans.__('%1 used', gpuCount(figures.used));
}

/** "3 free for good · 5 more until reclaimed" */
export function freeText(
  figures: IGpuFigures,
  trans: TranslationBundle
): string {
  const good = gpuCount(figures.freeForGood);
  const lent = gpuCount(figures.freeUntilReclaimed);
  if (figures.freeForGood > 0) {
    return joined([
      trans.__('%1 free for good', good),
      figures.freeUntilReclaimed > 0
        ? trans.__('%1 more until reclaimed', lent)
        : null
    ]);
  }
  return figures.freeUntilReclaimed > 0
    ? trans.__('%1 free until reclaimed', lent)
    : trans.__('nothing free now');
}

/** "2 waiting", in the queue and all below it; "" when none is. */
export function waitingText(row: IQueueRow, trans: TranslationBundle): string {
  const { waiting } = row.queue;
  return waiting > 0 ? trans.__('%1 waiting', waiting) : '';
}

/** "4 mine"; "" when none is. */
export function mineText(
  figures: IGpuFigures,
  trans: TranslationBundle
): string {
  return figures.mine > 0 ? trans.__('%1 mine', gpuCount(figures.mine)) : '';
}

/** Why nothing of the caller can run here; "" when it can. */
export function barredText(row: IQueueRow, trans: TranslationBundle): string {
  if (row.maySubmit) {
    return '';
  }
  return row.hasChildren
    ? trans.__('You may not submit to any queue in it.')
    : trans.__('You may not submit to this queue.');
}

/** What is behind the figures, a sentence each. */
export function explanations(
  row: IQueueRow,
  trans: TranslationBundle
): string[] {
  const { figures, queue } = row;
  const sentences = [
    figures.lentOut > 0
      ? trans._n(
          '%2 of its guaranteed GPUs is lent to other queues at present.',
          '%2 of its guaranteed GPUs are lent to other queues at present.',
          figures.lentOut / MILLI,
          gpuCount(figures.lentOut)
        )
      : '',
    figures.freeForGood > 0
      ? trans.__(
          'Free for good: within the guarantee; nobody can claim them back.'
        )
      : '',
    figures.freeUntilReclaimed > 0
      ? trans.__(
          'Until reclaimed: idle GPUs of others, lent until their owner claims them.'
        )
      : '',
    figures.hasMaximum
      ? trans.__('At most %1 GPUs.', gpuCount(figures.most))
      : trans.__('No maximum but the cluster: %1 GPUs.', gpuCount(figures.most))
  ];
  if (queue.is_leaf) {
    sentences.push(trans.__('Order: %1.', orderingText(queue.ordering, trans)));
  }
  return sentences.filter(Boolean);
}

function orderingText(ordering: string, trans: TranslationBundle): string {
  switch (ordering) {
    case 'fifo':
      return trans.__('first come, first served');
    case 'priority':
      return trans.__('highest priority first');
    case 'shortest':
      return trans.__('shortest first');
    case 'attained':
      return trans.__('least service so far first');
    default:
      return ordering;
  }
}

/** All of a row in one line, as a screen reader tells it: the words that the eye sees, in the same order. */
export function queueLabel(row: IQueueRow, trans: TranslationBundle): string {
  return joined(
    [
      row.queue.name,
      waitingText(row, trans),
      usedText(row.figures, trans),
      mineText(row.figures, trans),
      freeText(row.figures, trans),
      barredText(row, trans)
    ],
    ', '
  );
}

/** One GPU type of a queue in one line. */
export function typeLabel(
  type: string,
  figures: IGpuFigures,
  trans: TranslationBundle
): string {
  return trans.__(
    '%1: %2',
    type,
    joined(
      [
        typeUsedText(figures, trans),
        mineText(figures, trans),
        freeText(figures, trans)
      ],
      ', '
    )
  );
}
