/** What the sidebar remembers over a reload: which parts are open, how large, and how the list of jobs is filtered. */
import { IStateDB } from '@jupyterlab/statedb';
import { PartialJSONObject } from '@lumino/coreutils';
import { ISignal, Signal } from '@lumino/signaling';

import { Group, GROUPS, Scope } from './jobList';

export type SectionName = 'queues' | 'topology' | 'jobs';

export interface IViewState {
  /** Sections that are closed. */
  closedSections: SectionName[];
  /** Heights in pixels that were set by hand. */
  heights: Partial<Record<SectionName, number>>;
  /** Queues whose children are not shown. */
  closedQueues: string[];
  /** Queues whose GPU types are shown. */
  openTypes: string[];
  scope: Scope;
  filter: string;
  closedGroups: Group[];
}

export const DEFAULTS: Readonly<IViewState> = {
  closedSections: [],
  heights: {},
  closedQueues: [],
  openTypes: [],
  scope: 'mine',
  filter: '',
  closedGroups: []
};

const KEY = 'jupyter-gpucluster:sidebar';
const SECTIONS: readonly SectionName[] = ['queues', 'topology', 'jobs'];

/** Kept in Lab's database of states; without one, in memory alone. */
export class ViewState {
  /** `first`: what is otherwise than by default where nothing was kept. */
  constructor(
    private readonly stateDB: IStateDB | null = null,
    private readonly first: Partial<IViewState> = {}
  ) {
    this.state = { ...DEFAULTS, ...first };
  }

  get current(): Readonly<IViewState> {
    return this.state;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Take in what was kept. What the user has changed by then stays. */
  async restore(): Promise<void> {
    const kept = await this.stateDB?.fetch(KEY).catch(() => undefined);
    this.state = {
      ...DEFAULTS,
      ...this.first,
      ...readState(kept),
      ...this.touched
    };
    this._changed.emit();
  }

  set(change: Partial<IViewState>): void {
    this.touched = { ...this.touched, ...change };
    this.state = { ...this.state, ...change };
    // What could not be kept is only forgotten at the next reload.
    this.stateDB
      ?.save(KEY, this.state as unknown as PartialJSONObject)
      .catch(() => undefined);
    this._changed.emit();
  }

  private state: IViewState;
  private touched: Partial<IViewState> = {};
  private readonly _changed = new Signal<this, void>(this);
}

/** What is right in something that another version, or another hand, may have written. */
export function readState(kept: unknown): Partial<IViewState> {
  if (typeof kept !== 'object' || kept === null) {
    return {};
  }
  const {
    closedSections,
    heights,
    closedQueues,
    openTypes,
    scope,
    filter,
    closedGroups
  } = kept as Record<string, unknown>;
  const state: Partial<IViewState> = {};
  if (Array.isArray(closedSections)) {
    state.closedSections = SECTIONS.filter(one => closedSections.includes(one));
  }
  if (Array.isArray(closedQueues)) {
    state.closedQueues = closedQueues.filter(one => typeof one === 'string');
  }
  if (Array.isArray(openTypes)) {
    state.openTypes = openTypes.filter(one => typeof one === 'string');
  }
  if (Array.isArray(closedGroups)) {
    state.closedGroups = GROUPS.filter(one => closedGroups.includes(one));
  }
  if (scope === 'mine' || scope === 'all') {
    state.scope = scope;
  }
  if (typeof filter === 'string') {
    state.filter = filter;
  }
  if (typeof heights === 'object' && heights !== null) {
    state.heights = Object.fromEntries(
      Object.entries(heights).filter(
        ([name, height]) =>
          SECTIONS.includes(name as SectionName) && Number.isFinite(height)
      )
    );
  }
  return state;
}

/** `list` with `item` in it, or without. */
export function toggled<T>(list: readonly T[], item: T): T[] {
  return list.includes(item)
    ? list.filter(other => other !== item)
    : [...list, item];
}
