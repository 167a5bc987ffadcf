/**
 * Sees to it that each cell of a notebook which shows a job ends up with all of its output (DESIGN 4, *One owner of a cell's
 * output*): by its kernel while that draws into this page, else from the job's log. One keeper per open notebook.
 */
import { CodeCell, ICodeCellModel } from '@jupyterlab/cells';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Contents } from '@jupyterlab/services';
import { IDisposable } from '@lumino/disposable';

import { ApiError } from '../api/errors';
import { CellDrawing, JobView } from '../api/schemas';
import { IClaim, IStreams } from '../api/streams';
import { cardOf, ICard, isWhole, submitsItself } from './card';
import { DocumentFile } from './document';
import { Executions } from './executions';
import { CellFiller } from './filler';
import { Turns } from './turns';

export interface IKeeperOptions {
  panel: NotebookPanel;
  streams: IStreams;
  /** The page's: a notebook of many unfinished cells must leave room for its panels. */
  turns: Turns;
  contents: Contents.IManager;
  /** The newest job of each cell, of the user's own that were submitted by a notebook of such a path. */
  findJobs: (
    cellIds: string[],
    isHere: (notebookPath: string | null) => boolean,
    isOver: () => boolean
  ) => Promise<JobView[]>;
  /** Tells of each job of the user's own that is submitted from now on, wherever. */
  followNewJobs: (onNew: (job: JobView) => void) => IDisposable;
  /** Whether to save the notebook after a cell was filled. */
  savesFilled: () => boolean;
}

/** What stands to be drawn in a cell, by its card or by what the cluster remembers. */
interface IUnfinished {
  jobId: string;
  drawing: CellDrawing;
  card: Record<string, unknown> | null;
}

/** The page into which a kernel draws a new job's cell has so long to say so. */
const SAY_SO_MS = 3000;

export class NotebookKeeper implements IDisposable {
  constructor(private readonly options: IKeeperOptions) {
    this.file = new DocumentFile(options.panel.context, options.contents);
    void this.begin();
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    if (this.disposed) {
      return;
    }
    this.disposed = true;
    this.newJobs?.dispose();
    this.fillers.forEach(filler => filler.dispose());
    this.unsaved.forEach(filler => filler.dispose());
    this.kernelClaims.forEach(({ claim }) => claim.dispose());
    this.watched.forEach((slot, model) => {
      if (!model.isDisposed) {
        model.outputs.changed.disconnect(slot); // one that is disposed has no outputs
      }
    });
    const notebook = this.options.panel.content.model;
    notebook?.cells.changed.disconnect(this.onCellsChanged, this);
    notebook?.contentChanged.disconnect(this.onContentChanged, this);
  }

  private async begin(): Promise<void> {
    const { panel } = this.options;
    await panel.context.ready;
    await panel.revealed;
    if (this.disposed || !panel.content.model) {
      return;
    }
    panel.content.model.cells.changed.connect(this.onCellsChanged, this);
    panel.disposed.connect(() => this.dispose());
    this.file.onClean(() => this.onClean());
    this.isEdited = this.file.isDirty;
    panel.content.model.contentChanged.connect(this.onContentChanged, this);
    this.onCellsChanged();
    try {
      await this.recall();
    } catch (reason) {
      console.warn('What this notebook submitted is not to be had.', reason);
    }
  }

  /** A change that no filler made: whoever made it saves it. */
  private onContentChanged(): void {
    if (![...this.fillers.values()].some(filler => filler.isWriting)) {
      this.isEdited = true;
    }
  }

  // ---- cells of this notebook

  private onCellsChanged(): void {
    for (const cell of this.cells()) {
      if (!this.watched.has(cell.model)) {
        const slot = () => this.look(cell.model);
        this.watched.set(cell.model, slot);
        cell.model.outputs.changed.connect(slot);
      }
    }
    this.lookAtAll();
    this.lookSoon(); // also when none is left
  }

  private cells(): CodeCell[] {
    return this.options.panel.content.widgets.filter(
      (cell): cell is CodeCell => cell instanceof CodeCell && !cell.isDisposed
    );
  }

  private lookAtAll(): void {
    this.cells().forEach(cell => this.look(cell.model));
  }

  /** Look at a cell once the present change is over. */
  private look(model: ICodeCellModel): void {
    this.toLookAt.add(model);
    this.lookSoon();
  }

  private lookSoon(): void {
    if (!this.looksSoon) {
      this.looksSoon = true;
      queueMicrotask(() => this.lookNow());
    }
  }

  private lookNow(): void {
    const due = new Set(this.toLookAt);
    this.toLookAt.clear();
    this.looksSoon = false;
    if (this.disposed) {
      return;
    }
    const cells = this.cells();
    const there = new Set(cells.map(cell => cell.model));
    this.dropGone(there);
    cells
      .filter(cell => due.has(cell.model))
      .forEach(cell => this.lookAt(cell));
    // Last: one that was moved is another model with the same claim, and no other page gets the cell in between.
    for (const model of this.kernelClaims.keys()) {
      if (!there.has(model)) {
        this.endKernelClaim(model);
      }
    }
  }

  private dropGone(there: ReadonlySet<ICodeCellModel>): void {
    for (const [model, filler] of this.fillers) {
      if (!there.has(model)) {
        this.fillers.delete(model);
        filler.dispose();
      }
    }
    for (const model of this.watched.keys()) {
      if (!there.has(model)) {
        this.watched.delete(model);
      }
    }
  }

  private lookAt(cell: CodeCell): void {
    const { model } = cell;
    const card = cardOf(model.outputs);
    if (this.executions.isRunning(cell)) {
      this.dropFiller(model);
      this.sayKernelDraws(model, card);
      return;
    }
    this.forgetShown(model, card);
    const unfinished = this.unfinished(model, card);
    const filler = this.fillers.get(model);
    if (filler && !filler.isDrawing && filler.jobId !== unfinished?.jobId) {
      this.dropFiller(model); // while it waited, another view or page of the notebook did it
    }
    if (
      unfinished &&
      !this.fillers.has(model) &&
      !this.dismissed.has(unfinished.jobId)
    ) {
      this.fill(cell, unfinished);
    }
    // Until the file has it, another page would draw the cell once more.
    if (!this.file.isDirty || this.fillers.has(model)) {
      this.endKernelClaim(model);
    }
  }

  private unfinished(
    model: ICodeCellModel,
    card: ICard | null
  ): IUnfinished | null {
    const recalled = this.recalled.get(model.id);
    if (recalled && (!card || recalled.number > card.number)) {
      return { jobId: recalled.id, drawing: drawingOf(recalled), card: null };
    }
    return card && !isWhole(card, model.outputs) && this.mayBelieve(model, card)
      ? { jobId: card.jobId, drawing: card.drawing, card: card.saved }
      : null;
  }

  /** What the cell shows need not be recalled: if it is cleared, somebody wants it so. */
  private forgetShown(model: ICodeCellModel, card: ICard | null): void {
    const recalled = this.recalled.get(model.id);
    if (recalled && card && card.number >= recalled.number) {
      this.recalled.delete(model.id);
    }
  }

  /**
   * Whether the card is of this user's making, or this cell's by what the cluster knows. Somebody else may have put it into
   * the file, to have what a job of this user's has written filled in, and saved where they can read it.
   */
  private mayBelieve(model: ICodeCellModel, card: ICard): boolean {
    return model.trusted || this.submitted.get(model.id)?.id === card.jobId;
  }

  /** Other pages must not draw this cell: a kernel does. */
  private sayKernelDraws(model: ICodeCellModel, card: ICard | null): void {
    const key = card && this.key(model, card.jobId);
    const said = this.kernelClaims.get(model);
    if (key && said?.key !== key) {
      said?.claim.dispose();
      const claim = this.options.streams.claim(key, 'kernel', () => undefined);
      this.kernelClaims.set(model, { key, claim });
    }
  }

  private endKernelClaim(model: ICodeCellModel): void {
    this.kernelClaims.get(model)?.claim.dispose();
    this.kernelClaims.delete(model);
  }

  private key(model: ICodeCellModel, jobId: string): string {
    return `${this.file.path}#${model.id}#${jobId}`;
  }

  // ---- drawing

  private fill(cell: CodeCell, unfinished: IUnfinished): void {
    const { model } = cell;
    const filler = new CellFiller({
      ...unfinished,
      streams: this.options.streams,
      turns: this.options.turns,
      model,
      key: this.key(model, unfinished.jobId),
      mayFill: () => this.mayFill(cell, unfinished.jobId),
      onBegin: () => this.executions.letGo(cell),
      onEnd: (whole, why) => {
        this.fillers.delete(model);
        this.recalled.delete(model.id);
        if (whole) {
          void this.keepUntilSaved(filler);
        } else {
          this.onBrokenOff(model, unfinished.jobId, why);
        }
      }
    });
    this.fillers.set(model, filler);
  }

  /** The claim was granted, maybe after another page had drawn and saved the cell: then its file is taken instead. */
  private async mayFill(cell: CodeCell, jobId: string): Promise<boolean> {
    if (await this.file.takeNewer()) {
      return false; // the cells are new ones now, and are looked at by themselves
    }
    if (cell.isDisposed || this.executions.isRunning(cell)) {
      return false;
    }
    const { model } = cell;
    return this.unfinished(model, cardOf(model.outputs))?.jobId === jobId;
  }

  private async keepUntilSaved(filler: CellFiller): Promise<void> {
    this.unsaved.add(filler);
    if (!this.isEdited && this.options.savesFilled()) {
      await this.file.save();
    }
    if (!this.file.isDirty) {
      this.onClean();
    }
  }

  /** The file has all that this page drew: other pages may look at it. */
  private onClean(): void {
    this.isEdited = false;
    this.unsaved.forEach(filler => filler.dispose());
    this.unsaved.clear();
    this.lookAtAll();
  }

  private onBrokenOff(
    model: ICodeCellModel,
    jobId: string,
    why?: ApiError
  ): void {
    if (model.outputs.length === 0 || this.failed.has(jobId)) {
      this.dismissed.add(jobId); // cleared by the user, or it cannot be drawn: not again on this page
    }
    if (why && this.dismissed.has(jobId)) {
      console.warn(`The output of job ${jobId} is not to be had.`, why);
    }
    this.failed.add(jobId);
    this.look(model);
  }

  private dropFiller(model: ICodeCellModel): void {
    this.fillers.get(model)?.dispose();
    this.fillers.delete(model);
  }

  // ---- what the file does not say

  /**
   * A page that was closed before the notebook was saved left no card in it. The cluster knows which cell submitted what.
   * A job that ended before the file was saved last is left alone: who saved the cell without it wanted it so.
   */
  private async recall(): Promise<void> {
    const ids = this.cells()
      .filter(cell => submitsItself(cell.model.sharedModel.source))
      .map(cell => cell.model.id);
    if (ids.length === 0) {
      return;
    }
    this.openedUs = this.file.savedMs * 1000;
    this.newJobs = this.options.followNewJobs(job => void this.onNewJob(job));
    const isHere = (path: string | null) => this.file.isNamed(path);
    const isOver = () => this.disposed;
    const jobs = await this.options.findJobs(ids, isHere, isOver);
    if (this.disposed) {
      return;
    }
    jobs.forEach(job => this.remember(job));
    this.lookAtAll();
  }

  private remember(job: JobView): void {
    const { cell_id: cell, ended_us: endedUs } = job;
    if (!cell || job.number < (this.submitted.get(cell)?.number ?? 0)) {
      return;
    }
    this.submitted.set(cell, job);
    if (job.fills_cell && (endedUs === null || endedUs > this.openedUs)) {
      this.recalled.set(cell, job);
    }
  }

  /**
   * A kernel goes on with the cells in its queue after the page is reloaded, and what they submit is drawn in no page: nor is
   * it in the notebook that this page saves.
   */
  private async onNewJob(job: JobView): Promise<void> {
    if (!this.file.isNamed(job.notebook_path) || this.isShown(job)) {
      return;
    }
    await new Promise(resolve => setTimeout(resolve, SAY_SO_MS));
    if (!this.disposed && !this.isShown(job)) {
      this.remember(job);
      this.lookAtAll();
    }
  }

  /** Whether the job's cell has it, or gets it from its kernel. */
  private isShown(job: JobView): boolean {
    const cell = this.cells().find(each => each.model.id === job.cell_id);
    if (!cell || this.executions.isRunning(cell)) {
      return true;
    }
    const card = cardOf(cell.model.outputs);
    return card !== null && card.number >= job.number;
  }

  private disposed = false;
  private newJobs: IDisposable | null = null;
  /** When the file had been saved as this page got it, by the server's clock. */
  private openedUs = 0;
  private readonly file: DocumentFile;
  private readonly executions = new Executions(() => this.lookAtAll());
  private readonly watched = new Map<ICodeCellModel, () => void>();
  private readonly toLookAt = new Set<ICodeCellModel>();
  private looksSoon = false;
  /** Something is unsaved that no filler has drawn. */
  private isEdited = false;
  private readonly fillers = new Map<ICodeCellModel, CellFiller>();
  /** Fillers that are through, whose cells are not in the file yet. */
  private readonly unsaved = new Set<CellFiller>();
  private readonly kernelClaims = new Map<
    ICodeCellModel,
    { key: string; claim: IClaim }
  >();
  /** Cell id -> the newest job of this user's that it submitted, as the cluster knows. */
  private readonly submitted = new Map<string, JobView>();
  /** Cell id -> its newest job, where the notebook may not know of it. */
  private readonly recalled = new Map<string, JobView>();
  /** Jobs whose drawing broke off once. */
  private readonly failed = new Set<string>();
  private readonly dismissed = new Set<string>();
}

function drawingOf(job: JobView): CellDrawing {
  return { fills_cell: true, execution_count: job.execution_count };
}
