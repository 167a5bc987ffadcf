/** Shows a job's log in the main area. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

export const log: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:log',
  description: "Shows a job's log in the main area.",
  autoStart: true,
  activate: (app: JupyterFrontEnd) => undefined
};
