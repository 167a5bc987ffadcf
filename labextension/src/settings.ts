/** The user's settings (schema/plugin.json), typed; the defaults stand where there is no settings registry. */
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ISignal, Signal } from '@lumino/signaling';

import { IGpuSettings, ISettingValues } from './tokens';

export const SETTINGS_ID = 'jupyter-gpucluster:plugin';

/** The defaults of schema/plugin.json; a test compares the two. */
export const DEFAULTS: Readonly<ISettingValues> = {
  showStatusBar: true,
  submitOptions: '--gpus 1',
  jobsShown: 'mine',
  colourBy: 'job',
  topologySize: 'auto',
  fillCells: true,
  saveFilledCells: true,
  notifyOnEnd: 'failed'
};

/** What settings are read from and written to: a loaded plugin of the registry. */
export type SettingStore = Pick<
  ISettingRegistry.ISettings,
  'composite' | 'changed' | 'set'
>;

export class GpuSettings implements IGpuSettings {
  constructor(private readonly store: SettingStore | null = null) {
    this.current = this.read();
    store?.changed.connect(this.onChanged, this);
  }

  get values(): Readonly<ISettingValues> {
    return this.current;
  }

  get changed(): ISignal<IGpuSettings, void> {
    return this._changed;
  }

  async set<K extends keyof ISettingValues>(
    key: K,
    value: ISettingValues[K]
  ): Promise<void> {
    if (this.store) {
      await this.store.set(key, value);
      return;
    }
    this.current = { ...this.current, [key]: value };
    this._changed.emit();
  }

  /** The registry has checked them by the schema. */
  private read(): ISettingValues {
    return { ...DEFAULTS, ...this.store?.composite };
  }

  private onChanged(): void {
    this.current = this.read();
    this._changed.emit();
  }

  private current: ISettingValues;
  private readonly _changed = new Signal<IGpuSettings, void>(this);
}
