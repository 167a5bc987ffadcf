/** Runs a cell of a notebook as a job. */
import { CodeCellModel } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';

import { submitsItself } from '../notebook/card';

/** Loads the magics unless they are there. As a kernel runs one request after another, a cell that follows has them. */
const LOAD = `if get_ipython().find_cell_magic('submit') is None:
    get_ipython().run_line_magic('load_ext', 'jupyter_gpucluster')`;

export interface ISubmitOptions {
  panel: NotebookPanel;
  /** What stands after `%%submit`. */
  options: string;
  commands: CommandRegistry;
  trans: TranslationBundle;
}

/** The active cell, when it is one of code. */
export function activeCode(panel: NotebookPanel | null): CodeCellModel | null {
  const model = panel?.content.activeCell?.model;
  return model?.type === 'code' ? (model as CodeCellModel) : null;
}

/** Puts `%%submit` on top of the active cell if it is not there, and runs it. Raises an Error that says why it cannot. */
export async function submitCell(asked: ISubmitOptions): Promise<void> {
  const { panel, options, commands, trans } = asked;
  const cell = activeCode(panel);
  if (!cell || !cell.sharedModel.getSource().trim()) {
    throw new Error(trans.__('Choose a cell with code.'));
  }
  await panel.sessionContext.ready;
  if (panel.sessionContext.hasNoKernel) {
    await commands.execute('notebook:change-kernel');
  }
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) {
    return; // the user did not choose one
  }
  await prepare(kernel, trans);
  // A kernel that had to start took its time, in which the user may have gone elsewhere.
  const { content } = panel;
  const index = content.widgets.findIndex(each => each.model === cell);
  if (index < 0) {
    return; // deleted meanwhile
  }
  const { sharedModel } = cell;
  if (!submitsItself(sharedModel.getSource())) {
    sharedModel.updateSource(0, 0, `${`%%submit ${options}`.trim()}\n`);
  }
  content.activeCellIndex = index;
  content.deselectAll();
  // Not the command, which runs the active cell of the notebook in front: another one by now, perhaps.
  await NotebookActions.run(content, panel.sessionContext);
}

/** Has the kernel load the magics. A kernel that is busy loads them before it comes to the cell, so that is not waited for. */
async function prepare(
  kernel: Kernel.IKernelConnection,
  trans: TranslationBundle
): Promise<void> {
  const { language_info: language } = await kernel.info;
  if (language.name !== 'python') {
    throw new Error(
      trans.__(
        'Only cells of Python run on the GPU cluster, not of %1.',
        language.name
      )
    );
  }
  const loading = kernel.requestExecute({
    code: LOAD,
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false
  });
  if (kernel.status !== 'idle') {
    return; // the cell itself will say what is missing
  }
  const { content } = await loading.done;
  if (content.status === 'error') {
    throw new Error(
      trans.__(
        'The magics of the GPU cluster cannot be loaded in this kernel (%1: %2). Is jupyter-gpucluster installed in its environment?',
        content.ename,
        content.evalue
      )
    );
  }
}
