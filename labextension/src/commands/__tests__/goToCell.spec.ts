import { NotebookActions } from '@jupyterlab/notebook';
import { Contents } from '@jupyterlab/services';

import { trans } from '../../model/__tests__/logRecords';
import { jobView } from '../../model/testing';
import { candidates, goToCell, INotebooks } from '../goToCell';
import { FakeCell, FakeNotebook, FakeTracker } from './notebooks';

const job = jobView({
  number: 7,
  notebook_path: '/home/ada/work/sub/train.ipynb',
  cell_id: 'c2'
});
const cells = () => [
  new FakeCell('c1'),
  new FakeCell('c2'),
  new FakeCell('c3')
];

let tracker: FakeTracker;
/** Notebooks on the disk of the server, which opening adds to the page. */
let files: FakeNotebook[];
let asked: string[];
let revealed: string[];
let notebooks: INotebooks;

beforeEach(() => {
  jest.spyOn(NotebookActions, 'expandParent').mockReturnValue(undefined);
  tracker = new FakeTracker([]);
  files = [];
  asked = [];
  revealed = [];
  notebooks = {
    tracker: tracker.tracker,
    documents: {
      openOrReveal: (path: string) => {
        const file = files.find(each => each.path === path)!;
        tracker.notebooks.push(file);
        return file.panel;
      }
    } as unknown as INotebooks['documents'],
    contents: {
      get: async (path: string, options: Contents.IFetchOptions) => {
        asked.push(options.content ? `all of ${path}` : path);
        const file = files.find(each => each.path === path);
        if (!file) {
          throw new Error('404');
        }
        const cells = file.cells.map(({ id }) => ({ id }));
        return { content: options.content ? { cells } : null };
      },
      localPath: (path: string) => path.replace(/^RTC:/, '')
    } as unknown as INotebooks['contents'],
    serverRoot: '/home/ada/work',
    reveal: id => revealed.push(id),
    trans
  };
});

function shown(notebook: FakeNotebook): unknown {
  return [
    revealed.includes(notebook.id),
    notebook.content.activeCellIndex,
    notebook.content.mode,
    notebook.calls
  ];
}

const SHOWN = [
  true,
  1,
  'command',
  ['deselectAll', ['scrollTo', 1], 'activate']
];

test('the cell of an open notebook is selected and scrolled to', async () => {
  const notebook = new FakeNotebook('sub/train.ipynb', cells());
  tracker.notebooks.push(new FakeNotebook('other.ipynb', cells()), notebook);
  await goToCell(job, notebooks);
  expect(shown(notebook)).toEqual(SHOWN);
  expect(asked).toEqual([]);
});

test('a notebook of a drive with a name of its own is the same notebook', async () => {
  const notebook = new FakeNotebook('RTC:sub/train.ipynb', cells());
  tracker.notebooks.push(notebook);
  await goToCell(job, notebooks);
  expect(shown(notebook)).toEqual(SHOWN);
});

test('a notebook that is not open is opened', async () => {
  const notebook = new FakeNotebook('sub/train.ipynb', cells());
  files.push(notebook);
  await goToCell(job, notebooks);
  expect(asked).toEqual(['sub/train.ipynb']);
  expect(shown(notebook)).toEqual(SHOWN);
});

test('under another name it is found by the cell, when it is open', async () => {
  const notebook = new FakeNotebook('renamed.ipynb', cells());
  tracker.notebooks.push(notebook);
  await goToCell(job, notebooks);
  expect(shown(notebook)).toEqual(SHOWN);
});

test('of two files that may be meant, the one with the cell is opened', async () => {
  notebooks.serverRoot = '~';
  files.push(
    new FakeNotebook('train.ipynb', cells()),
    new FakeNotebook('work/sub/train.ipynb', [new FakeCell('else')])
  );
  await goToCell(job, notebooks);
  expect(shown(files[0])).toEqual(SHOWN);
});

test('however long its path, few files are asked for', async () => {
  notebooks.serverRoot = '~';
  const path = `/home/ada${'/a'.repeat(2000)}/train.ipynb`;
  await expect(
    goToCell({ ...job, notebook_path: path }, notebooks)
  ).rejects.toThrow('is not in the folder');
  expect(asked.length).toBe(10);
  expect(asked[0]).toBe(path.slice('/home/ada/'.length));
});

test('the cells of files are asked for only where there are several', async () => {
  notebooks.serverRoot = '~';
  const notebook = new FakeNotebook('sub/train.ipynb', cells());
  files.push(notebook);
  await goToCell(job, notebooks);
  expect(shown(notebook)).toEqual(SHOWN);
  expect(asked.filter(path => path.startsWith('all of'))).toEqual([]);
  files.unshift(new FakeNotebook('train.ipynb', []));
  tracker.notebooks.length = 0;
  asked.length = 0;
  await goToCell(job, notebooks);
  expect(asked.filter(path => path.startsWith('all of'))).toEqual([
    'all of sub/train.ipynb'
  ]);
});

test('a cell that is gone is said to be, in its notebook', async () => {
  const notebook = new FakeNotebook('sub/train.ipynb', [new FakeCell('c1')]);
  tracker.notebooks.push(notebook);
  await expect(goToCell(job, notebooks)).rejects.toThrow(
    'The cell of job 7 is no longer in this notebook.'
  );
  expect(revealed).toEqual([notebook.id]);
});

test('a notebook that is not here is said to be, with its path', async () => {
  await expect(goToCell(job, notebooks)).rejects.toThrow(
    'The notebook of job 7 is not in the folder of this Jupyter server: /home/ada/work/sub/train.ipynb'
  );
});

test('a job of no cell is said to be one', async () => {
  await expect(goToCell(jobView({ number: 7 }), notebooks)).rejects.toThrow(
    'Job 7 does not come from a cell of a notebook.'
  );
});

test('where notebooks open in tabs of their own, that is all', async () => {
  files.push(new FakeNotebook('sub/train.ipynb', cells()));
  notebooks.documents!.openOrReveal = () => undefined;
  await goToCell(job, notebooks);
  expect(revealed).toEqual([]);
});

test('a very long id is known by its end', async () => {
  const id = `vscode-notebook-cell:/${'x'.repeat(300)}#W2`;
  const notebook = new FakeNotebook('sub/train.ipynb', [
    new FakeCell('c1'),
    new FakeCell(id)
  ]);
  tracker.notebooks.push(notebook);
  await goToCell({ ...job, cell_id: id.slice(-200) }, notebooks);
  expect(shown(notebook)).toEqual(SHOWN);
});

describe('where a notebook may be', () => {
  test.each([
    ['/srv/nb', '/srv/nb/a/b.ipynb', ['a/b.ipynb']],
    ['/srv/nb/', '/srv/nb/b.ipynb', ['b.ipynb']],
    ['/', '/srv/nb/b.ipynb', ['srv/nb/b.ipynb']],
    ['/srv/nb', '/srv/nbx/b.ipynb', []],
    ['~', '/home/ada/b.ipynb', ['b.ipynb', 'home/ada/b.ipynb', 'ada/b.ipynb']],
    ['~/nb', '/home/ada/nb/a/b.ipynb', ['a/b.ipynb']],
    ['~/nb', '/data/users/ada/nb/a/nb/b.ipynb', ['a/nb/b.ipynb', 'b.ipynb']],
    ['~/nb', '/somewhere/else.ipynb', []],
    ['/srv', '/srv/../../api/shutdown', []],
    ['/srv', '/srv/..', []],
    ['~', '/home/ada/../x/b.ipynb', ['x/b.ipynb', 'b.ipynb']],
    ['', '//a/./b..ipynb', ['b..ipynb']],
    ['~', '/home/ada/', []],
    ['', '/a/b.ipynb', ['a/b.ipynb', 'b.ipynb']]
  ])('below %j, %j is %j', (root, path, places) => {
    expect(candidates(path, root)).toEqual(places);
  });
});
