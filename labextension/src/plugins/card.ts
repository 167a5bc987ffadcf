/** Draws a job's card in a cell's output, live. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuCluster, IGpuStreams } from '../tokens';
// eslint-disable-next-line jupyter/prefer-lazy-imports -- renderers are made without waiting
import { cardFactory } from '../widgets/cardRenderer';

export const card: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:card',
  description: "Draws a job's card in a cell's output, live.",
  autoStart: true,
  requires: [IRenderMimeRegistry, IGpuCluster],
  optional: [IGpuStreams, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    rendermime: IRenderMimeRegistry,
    cluster: IGpuCluster,
    streams: IGpuStreams | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    const { commands } = app;
    rendermime.addFactory(cardFactory({ cluster, streams, commands, trans }));
  }
};
