/** From a job to the cell that submitted it, wherever its notebook is open or can be opened. */
import { IDocumentManager } from '@jupyterlab/docmanager';
import {
  INotebookModel,
  INotebookTracker,
  NotebookActions,
  NotebookPanel
} from '@jupyterlab/notebook';
import { INotebookContent } from '@jupyterlab/nbformat';
import { Contents } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { JobView } from '../api/schemas';

/** Where notebooks are found. */
export interface INotebooks {
  tracker: INotebookTracker | null;
  documents: IDocumentManager | null;
  contents: Pick<Contents.IManager, 'get' | 'localPath'>;
  /** The folder that paths of this server are relative to, as its pages are told: perhaps with "~" for the home folder. */
  serverRoot: string;
  /** Bring a widget of the shell to the front. */
  reveal(id: string): void;
  trans: TranslationBundle;
}

type Asked = Pick<JobView, 'number' | 'notebook_path' | 'cell_id'>;

/** Shows and selects the cell. Raises an Error that says why that cannot be done. */
export async function goToCell(
  job: Asked,
  notebooks: INotebooks
): Promise<void> {
  const { trans } = notebooks;
  const { notebook_path: path, cell_id: cell } = job;
  if (!path || !cell) {
    throw new Error(
      trans.__('Job %1 does not come from a cell of a notebook.', job.number)
    );
  }
  const places = candidates(path, notebooks.serverRoot);
  const open = openNotebooks(notebooks);
  const isThere = (panel: NotebookPanel) =>
    places.includes(pathOf(panel, notebooks));
  const panel =
    open.find(each => isThere(each) && cellIndex(each, cell) >= 0) ??
    open.find(isThere) ??
    (await openFile(places, cell, notebooks)) ??
    open.find(each => cellIndex(each, cell) >= 0); // it has another name by now
  if (panel === 'elsewhere') {
    return;
  }
  if (!panel) {
    throw new Error(
      trans.__(
        'The notebook of job %1 is not in the folder of this Jupyter server: %2',
        job.number,
        path
      )
    );
  }
  notebooks.reveal(panel.id);
  await panel.revealed;
  await panel.context.ready;
  const index = cellIndex(panel, cell);
  if (index < 0) {
    throw new Error(
      trans.__('The cell of job %1 is no longer in this notebook.', job.number)
    );
  }
  await showCell(panel, index);
}

async function showCell(panel: NotebookPanel, index: number): Promise<void> {
  const { content } = panel;
  content.deselectAll();
  content.activeCellIndex = index;
  NotebookActions.expandParent(content.widgets[index], content);
  content.mode = 'command';
  await content.scrollToItem(index, 'center');
  content.activate();
}

function openNotebooks({ tracker }: INotebooks): NotebookPanel[] {
  const panels: NotebookPanel[] = [];
  tracker?.forEach(panel => panels.push(panel));
  return panels;
}

function pathOf(panel: NotebookPanel, { contents }: INotebooks): string {
  return contents.localPath(panel.context.path);
}

function cellIndex(panel: NotebookPanel, cell: string): number {
  const model = panel.content.model as INotebookModel | null;
  const ids = [...(model?.cells ?? [])].map(each => each.id);
  return ids.findIndex(id => isId(id, cell));
}

/** A job keeps the end of a very long id alone. */
function isId(id: unknown, cell: string): boolean {
  return typeof id === 'string' && id.endsWith(cell);
}

/** The panel of the first file that has the cell, or else of the first that is there. "elsewhere": in another tab. */
async function openFile(
  places: readonly string[],
  cell: string,
  { documents, contents }: INotebooks
): Promise<NotebookPanel | 'elsewhere' | undefined> {
  if (!documents) {
    return undefined;
  }
  const isThere = await Promise.all(
    places.map(place =>
      contents.get(place, FILE).then(
        () => true,
        () => false
      )
    )
  );
  const files = places.filter((_, at) => isThere[at]);
  const found =
    files.length > 1 ? await fileOf(cell, files, contents) : files[0];
  if (found === undefined) {
    return undefined;
  }
  const widget = documents.openOrReveal(found);
  return widget ? (widget as NotebookPanel) : 'elsewhere';
}

/** The first of the files that has the cell, or else the first. */
async function fileOf(
  cell: string,
  files: readonly string[],
  contents: INotebooks['contents']
): Promise<string> {
  for (const place of files) {
    const file = await contents.get(place, NOTEBOOK).catch(() => null);
    const { cells } = (file?.content ?? {}) as Partial<INotebookContent>;
    if (cells?.some(each => isId(each.id, cell))) {
      return place;
    }
  }
  return files[0];
}

const FILE: Contents.IFetchOptions = { type: 'notebook', content: false };
const NOTEBOOK: Contents.IFetchOptions = { type: 'notebook', content: true };
/** Each is a request, and a job's path is another's word: real roots are few folders deep. */
const MAX_CANDIDATES = 10;
/** A step that is none or leads back: no server tells a kernel such a path, and in a URL it would lead elsewhere. */
const ODD_STEP = /(?:^|\/)\.{0,2}(?:\/|$)/;

/** Home folders as they usually are. */
const HOME = /^\/(?:home\/[^/]+|Users\/[^/]+|root)(?=\/)/;

/**
 * Where a notebook may be, relative to the server's root, likeliest first: below the usual home, then below folders as near
 * to the root of the file system as can be. `path`: as the kernel was told, in whole; `root`: in whole, or with "~" for a
 * home folder that is not known here.
 */
export function candidates(path: string, root: string): string[] {
  return placesBelow(path, root)
    .filter(place => !ODD_STEP.test(place))
    .slice(0, MAX_CANDIDATES);
}

function placesBelow(path: string, root: string): string[] {
  if (root.startsWith('/')) {
    const folder = root.endsWith('/') ? root : `${root}/`;
    return path.startsWith(folder) ? [path.slice(folder.length)] : [];
  }
  const below = root.replace(/^~/, '').replace(/\/$/, '');
  const home = HOME.exec(path)?.[0];
  const likely = home && path.startsWith(`${home}${below}/`);
  const first = likely ? [path.slice(`${home}${below}/`.length)] : [];
  const steps = [...path.matchAll(/\//g)].map(step => step.index ?? 0);
  const others = steps
    .filter(step => path.slice(0, step).endsWith(below))
    .map(step => path.slice(step + 1));
  return [...new Set([...first, ...others])];
}
