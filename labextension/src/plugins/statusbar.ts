/** Shows the GPU cluster in the status bar. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { CommandIDs, IGpuCluster, IGpuSettings } from '../tokens';

const ID = 'jupyter-gpucluster:status-bar';

export const statusbar: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Shows the GPU cluster in the status bar.',
  autoStart: true,
  requires: [IGpuCluster, IGpuSettings],
  optional: [IStatusBar, ITranslator],
  activate: async (
    app: JupyterFrontEnd,
    cluster: IGpuCluster,
    settings: IGpuSettings,
    bar: IStatusBar | null,
    translator: ITranslator | null
  ) => {
    if (!bar) {
      return; // Notebook has none
    }
    const { StatusItemWidget } = await import('../widgets/statusItem');
    const item = new StatusItemWidget({
      cluster,
      trans: (translator ?? nullTranslator).load('jupyter_gpucluster'),
      onClick: () => void app.commands.execute(CommandIDs.showPanel)
    });
    const changed = new Signal<object, void>({});
    const follow = (): void => {
      item.isWanted = settings.values.showStatusBar;
      changed.emit();
    };
    follow();
    settings.changed.connect(follow);
    bar.registerStatusItem(ID, {
      item,
      align: 'left',
      rank: 20,
      isActive: () => item.isWanted,
      activeStateChanged: changed
    });
  }
};
