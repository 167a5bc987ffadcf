/** Follows the GPU cluster for all of the page: one WebSocket, one model. Nothing is asked for until somebody looks. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

/* eslint-disable jupyter/prefer-lazy-imports -- what is provided is needed at once */
import { GpuClient } from '../api/client';
import { StreamSocket } from '../api/socket';
import { ClusterModel } from '../model/cluster';
import { IGpuCluster, IGpuStreams } from '../tokens';

const DOMAIN = 'jupyter_gpucluster';

/* eslint-enable jupyter/prefer-lazy-imports */

export const streams: JupyterFrontEndPlugin<IGpuStreams> = {
  id: 'jupyter-gpucluster:streams',
  description: "The page's one WebSocket to the GPU cluster.",
  autoStart: true,
  provides: IGpuStreams,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null) =>
    new StreamSocket(
      app.serviceManager.serverSettings,
      (translator ?? nullTranslator).load(DOMAIN)
    )
};

export const cluster: JupyterFrontEndPlugin<IGpuCluster> = {
  id: 'jupyter-gpucluster:cluster',
  description: 'Follows the GPU cluster for all of the page.',
  autoStart: true,
  provides: IGpuCluster,
  requires: [IGpuStreams],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    socket: IGpuStreams,
    translator: ITranslator | null
  ) =>
    new ClusterModel(
      socket,
      new GpuClient(
        app.serviceManager.serverSettings,
        (translator ?? nullTranslator).load(DOMAIN)
      )
    )
};
