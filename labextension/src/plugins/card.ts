/** Draws a job's card in a cell's output, live. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

export const card: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:card',
  description: "Draws a job's card in a cell's output, live.",
  autoStart: true,
  activate: (app: JupyterFrontEnd) => undefined
};
