/** Notebooks and their tracker, as far as the commands use them. */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

export class FakeCell {
  constructor(
    readonly id: string,
    source = '',
    readonly type: 'code' | 'markdown' = 'code'
  ) {
    this.source = source;
  }

  source: string;
  isAttached = true;
  node = document.createElement('div');
  /** What is asked of a cell's widget and of its model. */
  get model(): this {
    return this;
  }
  get sharedModel() {
    return {
      getSource: () => this.source,
      updateSource: (start: number, end: number, value: string) => {
        this.source =
          this.source.slice(0, start) + value + this.source.slice(end);
      }
    };
  }
}

export class FakeNotebook {
  constructor(
    readonly path: string,
    readonly cells: FakeCell[]
  ) {}

  readonly id = `panel of ${this.path}`;
  isVisible = true;
  readonly revealed = Promise.resolve();
  readonly context = { path: this.path, ready: Promise.resolve() };
  readonly calls: unknown[] = [];
  kernel: unknown = null;
  hasNoKernel = false;
  readonly sessionContext = ((notebook: FakeNotebook) => ({
    ready: Promise.resolve(),
    get hasNoKernel() {
      return notebook.hasNoKernel;
    },
    get session() {
      return notebook.kernel ? { kernel: notebook.kernel } : null;
    }
  }))(this);
  readonly content = ((notebook: FakeNotebook) => ({
    activeCellIndex: 0,
    mode: 'edit',
    node: document.createElement('div'),
    widgets: notebook.cells,
    get model() {
      return { cells: notebook.cells };
    },
    get activeCell() {
      return notebook.cells[this.activeCellIndex] ?? null;
    },
    deselectAll: () => notebook.calls.push('deselectAll'),
    scrollToItem: async (index: number) => {
      notebook.calls.push(['scrollTo', index]);
    },
    activate: () => notebook.calls.push('activate')
  }))(this);

  get panel(): NotebookPanel {
    return this as unknown as NotebookPanel;
  }
}

export class FakeTracker {
  constructor(readonly notebooks: FakeNotebook[]) {}

  readonly activeCellChanged = new Signal<this, void>(this);
  readonly currentChanged = new Signal<this, void>(this);

  get currentWidget(): FakeNotebook | null {
    return this.notebooks[0] ?? null;
  }
  forEach(each: (notebook: FakeNotebook) => void): void {
    this.notebooks.forEach(each);
  }
  find(test: (notebook: FakeNotebook) => boolean): FakeNotebook | undefined {
    return this.notebooks.find(test);
  }

  get tracker(): INotebookTracker {
    return this as unknown as INotebookTracker;
  }
}
