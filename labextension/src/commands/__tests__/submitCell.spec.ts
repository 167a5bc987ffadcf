import { NotebookActions } from '@jupyterlab/notebook';
import { CommandRegistry } from '@lumino/commands';

import { trans } from '../../model/__tests__/logRecords';
import { activeCode, submitCell } from '../submitCell';
import { FakeCell, FakeNotebook } from './notebooks';

let done: unknown[];
let commands: CommandRegistry;
let notebook: FakeNotebook;
let kernel: {
  status: string;
  language: string;
  reply: { status: string; ename?: string; evalue?: string };
};

beforeEach(() => {
  done = [];
  kernel = { status: 'idle', language: 'python', reply: { status: 'ok' } };
  notebook = new FakeNotebook('a.ipynb', [new FakeCell('c1', 'fit(net)\n')]);
  notebook.kernel = {
    get status() {
      return kernel.status;
    },
    get info() {
      return Promise.resolve({ language_info: { name: kernel.language } });
    },
    requestExecute: (content: { code: string }) => {
      done.push(['kernel', content]);
      return {
        done:
          kernel.status === 'idle'
            ? Promise.resolve({ content: kernel.reply })
            : new Promise(() => undefined)
      };
    }
  };
  commands = new CommandRegistry();
  jest.spyOn(NotebookActions, 'run').mockImplementation(async content => {
    const { source } = content.activeCell as unknown as FakeCell;
    return done.push(['run', source]) > 0;
  });
  commands.addCommand('notebook:change-kernel', {
    execute: () => done.push('choose a kernel')
  });
});

afterEach(() => jest.restoreAllMocks());

const submit = (options = '--gpus 1') =>
  submitCell({ panel: notebook.panel, options, commands, trans });

const LOADED = [
  'kernel',
  expect.objectContaining({
    silent: true,
    store_history: false,
    stop_on_error: false
  })
];

test('the magics are loaded first, then the cell runs with %%submit on top', async () => {
  await submit('--gpus 2 --queue research');
  expect(done).toEqual([
    LOADED,
    ['run', '%%submit --gpus 2 --queue research\nfit(net)\n']
  ]);
  expect(notebook.calls).toEqual(['deselectAll']);
});

test('who goes to another cell while the kernel starts runs the one that was chosen', async () => {
  notebook.cells.push(new FakeCell('c2', 'rm_minus_rf()'));
  const submitted = submit();
  notebook.content.activeCellIndex = 1;
  await submitted;
  expect(done).toEqual([LOADED, ['run', '%%submit --gpus 1\nfit(net)\n']]);
});

test('a cell that is deleted while the kernel starts is not run, and no other one is', async () => {
  notebook.cells.push(new FakeCell('c2', 'rm_minus_rf()'));
  const submitted = submit();
  notebook.cells.shift();
  await submitted;
  expect(done).toEqual([LOADED]);
  expect(notebook.cells[0].source).toBe('rm_minus_rf()');
});

test('without options it is %%submit alone', async () => {
  await submit('');
  expect(notebook.cells[0].source).toBe('%%submit\nfit(net)\n');
});

test('a cell that submits itself stays as it is', async () => {
  await submit();
  await submit();
  expect(notebook.cells[0].source).toBe('%%submit --gpus 1\nfit(net)\n');
  notebook.cells[0].source = '%%submit -g 4 --no-wait\nfit(net)';
  await submit();
  expect(notebook.cells[0].source).toBe('%%submit -g 4 --no-wait\nfit(net)');
});

test('a kernel that is busy gets both requests and is not waited for', async () => {
  kernel.status = 'busy';
  await submit();
  expect(done).toEqual([LOADED, ['run', '%%submit --gpus 1\nfit(net)\n']]);
});

test('magics that cannot be loaded are said, and the cell stays as it is', async () => {
  kernel.reply = {
    status: 'error',
    ename: 'ModuleNotFoundError',
    evalue: "No module named 'jupyter_gpucluster'"
  };
  await expect(submit()).rejects.toThrow(
    "cannot be loaded in this kernel (ModuleNotFoundError: No module named 'jupyter_gpucluster'). Is jupyter-gpucluster installed in its environment?"
  );
  expect(notebook.cells[0].source).toBe('fit(net)\n');
  expect(done).toHaveLength(1);
});

test('a kernel of another language is said not to do', async () => {
  kernel.language = 'R';
  await expect(submit()).rejects.toThrow('not of R');
  expect(done).toEqual([]);
});

test('without a kernel one is chosen; when none is, nothing happens', async () => {
  notebook.hasNoKernel = true;
  notebook.kernel = null;
  await submit();
  expect(done).toEqual(['choose a kernel']);
  expect(notebook.cells[0].source).toBe('fit(net)\n');
});

test.each([
  new FakeCell('c1', '   \n'),
  new FakeCell('c1', '# text', 'markdown')
])('a cell without code is not run', async cell => {
  notebook.cells[0] = cell;
  await expect(submit()).rejects.toThrow('Choose a cell with code.');
  expect(done).toEqual([]);
});

test('only a cell of code can be submitted', () => {
  expect(activeCode(null)).toBeNull();
  expect(activeCode(notebook.panel)).not.toBeNull();
  notebook.cells[0] = new FakeCell('c1', '# text', 'markdown');
  expect(activeCode(notebook.panel)).toBeNull();
});
