import { Signal } from '@lumino/signaling';

import schema from '../../../schema/plugin.json';
import { DEFAULTS, GpuSettings, SettingStore } from '../../settings';

/** A plugin of the settings registry, as far as ours reads and writes it. */
class Store {
  composite: Record<string, unknown> = {};
  changed = new Signal<this, void>(this);

  async set(key: string, value: unknown): Promise<void> {
    this.composite = { ...this.composite, [key]: value };
    this.changed.emit();
  }
}

function told(settings: GpuSettings): () => number {
  let count = 0;
  settings.changed.connect(() => {
    count += 1;
  });
  return () => count;
}

test('the defaults are those of the schema, every one documented', () => {
  const properties = Object.entries(schema.properties);
  const defaults = properties.map(([name, about]) => [name, about.default]);
  expect(Object.fromEntries(defaults)).toEqual(DEFAULTS);
  for (const [, about] of properties) {
    expect(about.title).toBeTruthy();
    expect(about.description).toBeTruthy();
  }
});

test('without a registry the defaults stand, and a change lasts for the page', async () => {
  const settings = new GpuSettings();
  const count = told(settings);
  expect(settings.values).toEqual(DEFAULTS);
  await settings.set('jobsShown', 'all');
  expect(settings.values).toEqual({ ...DEFAULTS, jobsShown: 'all' });
  expect(count()).toBe(1);
});

test('values of the registry stand before the defaults, and change with it', async () => {
  const store = new Store();
  store.composite = { notifyOnEnd: 'never' };
  const settings = new GpuSettings(store as unknown as SettingStore);
  const count = told(settings);
  expect(settings.values).toEqual({ ...DEFAULTS, notifyOnEnd: 'never' });
  await settings.set('submitOptions', '--gpus 2');
  expect(store.composite.submitOptions).toBe('--gpus 2');
  expect(settings.values.submitOptions).toBe('--gpus 2');
  expect(count()).toBe(1);
});

test("menu items are such as Lab takes: one bad one would take everybody's menus along", () => {
  for (const item of schema['jupyter.lab.menus'].context) {
    expect(item.selector).not.toContain(',');
    expect(() => document.querySelector(item.selector)).not.toThrow();
  }
});
