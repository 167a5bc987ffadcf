/** Shows the GPU cluster in the status bar. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

export const statusbar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:status-bar',
  description: 'Shows the GPU cluster in the status bar.',
  autoStart: true,
  activate: (app: JupyterFrontEnd) => undefined
};
