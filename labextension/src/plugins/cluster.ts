/** Follows the GPU cluster for all of the page. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

export const cluster: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:cluster',
  description: 'Follows the GPU cluster for all of the page.',
  autoStart: true,
  activate: (app: JupyterFrontEnd) => undefined
};
