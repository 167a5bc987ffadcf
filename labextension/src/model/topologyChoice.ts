/** How the topology is shown: what the colours stand for, and how large nodes are. All views of the page share it. */
import { ISignal, Signal } from '@lumino/signaling';

import { GpuSettings } from '../settings';
import { IGpuSettings, ISettingValues } from '../tokens';

export type TopologyValues = Pick<ISettingValues, 'colourBy' | 'topologySize'>;

/** Reads and writes the user's settings once these are known; until then what is chosen lives as long as the page. */
export class TopologyChoice {
  constructor(private settings: IGpuSettings = new GpuSettings()) {
    settings.changed.connect(this.onChanged, this);
  }

  get values(): TopologyValues {
    return this.settings.values;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  keepIn(settings: IGpuSettings): void {
    this.settings.changed.disconnect(this.onChanged, this);
    this.settings = settings;
    settings.changed.connect(this.onChanged, this);
    this._changed.emit();
  }

  set<K extends keyof TopologyValues>(key: K, value: ISettingValues[K]): void {
    this.settings.set(key, value).catch(reason => {
      console.error(`The setting ${key} could not be kept.`, reason);
    });
  }

  private onChanged(): void {
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
}

export const topologyChoice = new TopologyChoice();
