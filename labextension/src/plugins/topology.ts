/** Shows the topology large in the main area; in Notebook, which has room for one document there, below it. */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import {
  ITranslator,
  nullTranslator,
  TranslationBundle
} from '@jupyterlab/translation';

import { gpuIcon } from '../icons';
import { topologyChoice } from '../model/topologyChoice';
import { CommandIDs, IGpuCluster, IGpuSettings } from '../tokens';
import { toFrontOfTabs } from '../widgets/tabs';
import type { TopologyPanel } from '../widgets/topologyPanel';

export const topology: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:topology',
  description: 'Shows the topology of the GPU cluster in the main area.',
  autoStart: true,
  requires: [IGpuCluster, IGpuSettings],
  optional: [ITranslator, ILabShell, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    cluster: IGpuCluster,
    settings: IGpuSettings,
    translator: ITranslator | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    topologyChoice.keepIn(settings);
    const tracker = new WidgetTracker<TopologyPanel>({
      namespace: 'jupyter-gpucluster-topology'
    });
    const open = opener(app, cluster, tracker, trans, labShell !== null);
    app.commands.addCommand(CommandIDs.openTopology, {
      label: trans.__('Open the GPU Topology'),
      caption: trans.__('Show nodes and GPUs large, and who holds them'),
      icon: args => (args.isPalette ? undefined : gpuIcon),
      describedBy: { args: { type: 'object', properties: {} } },
      // Lab takes out what comes before it has put back what was open, and that in turn comes by this command.
      execute: args =>
        args.isRestored ? open() : app.restored.then(() => open())
    });
    palette?.addItem({
      command: CommandIDs.openTopology,
      category: trans.__('GPU cluster')
    });
    void restorer?.restore(tracker, {
      command: CommandIDs.openTopology,
      args: () => ({ isRestored: true }),
      name: () => 'topology'
    });
  }
};

/** Opens the panel; there is one at most. */
function opener(
  app: JupyterFrontEnd,
  cluster: IGpuCluster,
  tracker: WidgetTracker<TopologyPanel>,
  trans: TranslationBundle,
  hasMainArea: boolean
): () => Promise<TopologyPanel> {
  const { shell, commands } = app;
  const area = hasMainArea ? 'main' : 'down';
  let making: Promise<TopologyPanel> | null = null;
  const make = async (): Promise<TopologyPanel> => {
    const { TopologyPanel } = await import('../widgets/topologyPanel');
    const panel = new TopologyPanel({ cluster, commands, trans });
    panel.toggleClass('jp-gpucluster-mod-below', !hasMainArea);
    shell.add(panel, area);
    await tracker.add(panel);
    panel.disposed.connect(() => {
      making = null;
    });
    return panel;
  };
  return async () => {
    making ??= make();
    const panel = await making.catch(reason => {
      making = null; // tried again the next time
      throw reason;
    });
    shell.activateById(panel.id);
    if (!hasMainArea) {
      toFrontOfTabs(panel); // Notebook leaves that to us
    }
    return panel;
  };
}
