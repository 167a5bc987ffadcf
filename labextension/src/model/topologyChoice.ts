/** How the topology is shown: what the colours stand for, and how much of a GPU is told. Both views of the page share it. */
import { IStateDB } from '@jupyterlab/statedb';
import { ISignal, Signal } from '@lumino/signaling';

/** What a GPU's colour stands for. */
export type Colors = 'job' | 'utilization';
/** How much is shown of a GPU where there is room; `auto`: by the number of nodes. */
export type Density = 'auto' | 'roomy' | 'dense';

export interface ITopologyChoice {
  readonly colors: Colors;
  readonly density: Density;
}

const KEY = 'jupyter-gpucluster:topology';
const COLORS: readonly Colors[] = ['job', 'utilization'];
const DENSITIES: readonly Density[] = ['auto', 'roomy', 'dense'];

/** Kept in Lab's database of states once that is known; until then, and without one, in memory alone. */
export class TopologyChoice {
  get current(): ITopologyChoice {
    return this.choice;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Keep it there from now on, and take in what was kept. What was chosen by then stays. */
  async keepIn(stateDB: IStateDB): Promise<void> {
    this.stateDB = stateDB;
    const kept = await stateDB.fetch(KEY).catch(() => undefined);
    this.choice = { ...this.choice, ...readChoice(kept), ...this.touched };
    this._changed.emit();
  }

  set(change: Partial<ITopologyChoice>): void {
    this.touched = { ...this.touched, ...change };
    this.choice = { ...this.choice, ...change };
    // What could not be kept is only forgotten at the next reload.
    this.stateDB?.save(KEY, { ...this.choice }).catch(() => undefined);
    this._changed.emit();
  }

  private stateDB: IStateDB | null = null;
  private choice: ITopologyChoice = { colors: 'job', density: 'auto' };
  private touched: Partial<ITopologyChoice> = {};
  private readonly _changed = new Signal<this, void>(this);
}

/** What is right in something that another version, or another hand, may have written. */
function readChoice(kept: unknown): Partial<ITopologyChoice> {
  const { colors, density } = (kept ?? {}) as Record<string, unknown>;
  return {
    ...(COLORS.includes(colors as Colors) && { colors: colors as Colors }),
    ...(DENSITIES.includes(density as Density) && {
      density: density as Density
    })
  };
}

export const topologyChoice = new TopologyChoice();
