/** Commands on jobs and cells: palette, context menus, cell toolbar. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

export const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:commands',
  description:
    'Commands on jobs and cells: palette, context menus, cell toolbar.',
  autoStart: true,
  activate: (app: JupyterFrontEnd) => undefined
};
