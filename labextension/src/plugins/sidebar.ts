/** The sidebar. */
import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { ClusterPanel } from '../panels/clusterPanel';

export const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:sidebar',
  description: 'Shows the GPU cluster in the left sidebar.',
  autoStart: true,
  optional: [ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    const panel = new ClusterPanel(app.serviceManager.serverSettings, trans);
    panel.id = 'jp-gpucluster-sidebar';
    panel.title.caption = trans.__('GPU cluster');
    panel.title.label = trans.__('GPU cluster');
    restorer?.add(panel, panel.id);
    app.shell.add(panel, 'left', { rank: 650 });
  }
};
