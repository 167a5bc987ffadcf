/** Draws one cell from its job's log, from the claim to the last output: the cell's owner when no kernel is. */
import { ICodeCellModel } from '@jupyterlab/cells';
import { IDisposable } from '@lumino/disposable';

import { ApiError } from '../api/errors';
import { IClaim, IStreams } from '../api/streams';
import { CellDrawing, CellOp } from '../api/schemas';
import { OutputSink } from './sink';
import { Turns } from './turns';

export interface IFillerOptions {
  streams: IStreams;
  turns: Turns;
  model: ICodeCellModel;
  /** One cell of one document of one server, and its job: what pages claim. */
  key: string;
  jobId: string;
  drawing: CellDrawing;
  /** What is taken over of the card that was saved; null when none was. */
  card: Record<string, unknown> | null;
  /** Asked when the claim was granted: whether there still is something to draw. */
  mayFill: () => Promise<boolean>;
  /** It began to draw. */
  onBegin: () => void;
  /**
   * `whole`: all was drawn; the claim is kept until the filler is disposed, for as long as the file does not say so.
   * Otherwise somebody else changed the cell, or the job cannot be read.
   */
  onEnd: (whole: boolean, why?: ApiError) => void;
}

export class CellFiller implements IDisposable {
  constructor(private readonly options: IFillerOptions) {
    this.outputs = options.model.outputs;
    this.sink = new OutputSink(
      this.outputs,
      options.drawing.execution_count ?? null
    );
    this.outputs.changed.connect(this.onOutputsChanged, this);
    this.claim = options.streams.claim(options.key, 'log', claimed => {
      if (!claimed.granted) {
        this.pause();
      } else if (!this.turn) {
        this.turn = options.turns.take(() => void this.begin());
      }
    });
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  get jobId(): string {
    return this.options.jobId;
  }

  /** Whether it is at it, rather than waiting for its turn. */
  get isDrawing(): boolean {
    return this.channel !== null;
  }

  /** Whether it is changing the notebook right now: what changes otherwise is somebody else's. */
  get isWriting(): boolean {
    return this.changing || this.sink.isWriting;
  }

  /** Give the cell up as it is. */
  dispose(): void {
    if (this.disposed) {
      return;
    }
    this.disposed = true;
    this.stop();
    this.claim.dispose();
  }

  private async begin(): Promise<void> {
    const isRight = await this.options.mayFill();
    if (this.ended || this.channel || !this.claim.granted) {
      return;
    }
    if (!isRight) {
      this.pause();
      return;
    }
    const { jobId, drawing, card } = this.options;
    this.options.onBegin();
    this.setState('running');
    this.channel = this.options.streams.open<CellOp>({
      whenHidden: 'keep',
      start: () => {
        this.anew = true;
        return { path: 'cell', cell: { job_id: jobId, drawing, card } };
      },
      onItems: ops => this.draw(ops),
      onEnded: () => this.end(this.sink.isDone),
      onFailed: error => this.end(false, error)
    });
  }

  private draw(ops: CellOp[]): void {
    if (this.ended) {
      return;
    }
    this.sink.apply(ops, this.anew);
    this.anew = false;
    if (this.sink.isDone) {
      this.end(true);
    }
  }

  private end(whole: boolean, why?: ApiError): void {
    if (this.ended) {
      return;
    }
    const { model, drawing } = this.options;
    if (whole) {
      this.change(() => {
        model.executionCount = drawing.execution_count ?? null;
      });
    }
    this.stop();
    if (!whole) {
      this.dispose();
    }
    this.options.onEnd(whole, why);
  }

  /** Draw no more. */
  private stop(): void {
    this.ended = true;
    this.outputs.changed.disconnect(this.onOutputsChanged, this);
    this.pause();
  }

  private pause(): void {
    this.turn?.dispose();
    this.turn = null;
    if (this.channel) {
      this.channel.dispose();
      this.channel = null;
      this.setState('idle');
    }
  }

  private setState(state: 'running' | 'idle'): void {
    const { model } = this.options;
    if (!model.isDisposed) {
      this.change(() => {
        model.executionState = state;
      });
    }
  }

  private change(make: () => void): void {
    this.changing = true;
    try {
      make();
    } finally {
      this.changing = false;
    }
  }

  /** Cleared, run again, or edited by somebody: the cell is theirs. */
  private onOutputsChanged(): void {
    if (this.channel && !this.sink.isWriting) {
      this.end(false);
    }
  }

  private anew = true;
  private turn: IDisposable | null = null;
  private channel: IDisposable | null = null;
  private claim: IClaim;
  private changing = false;
  private disposed = false;
  private ended = false;
  private readonly sink: OutputSink;
  /** Kept here: a model that was disposed of has none. */
  private readonly outputs: ICodeCellModel['outputs'];
}
