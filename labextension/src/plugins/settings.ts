/** The user's settings; this plugin's id carries the schema: settings, toolbar buttons, menus, shortcuts. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { GpuSettings, SETTINGS_ID } from '../settings';
import { IGpuSettings } from '../tokens';

export const settings: JupyterFrontEndPlugin<IGpuSettings> = {
  id: SETTINGS_ID,
  description: 'The settings of the GPU cluster.',
  autoStart: true,
  provides: IGpuSettings,
  optional: [ISettingRegistry],
  activate: async (app: JupyterFrontEnd, registry: ISettingRegistry | null) => {
    if (!registry) {
      return new GpuSettings();
    }
    try {
      return new GpuSettings(await registry.load(SETTINGS_ID));
    } catch (reason) {
      console.error(
        'The settings of the GPU cluster are not to be had.',
        reason
      );
      return new GpuSettings();
    }
  }
};
