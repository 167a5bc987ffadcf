/** Draws CellOps into a cell's output model: what `NotebookSink` of jupyter_gpucluster/replay.py is for stored notebooks. */
import * as nbformat from '@jupyterlab/nbformat';
import { IOutputAreaModel } from '@jupyterlab/outputarea';

import { CellOp } from '../api/schemas';

/** What of an output model is needed. */
export type Outputs = Pick<
  IOutputAreaModel,
  'add' | 'clear' | 'length' | 'set'
>;

export class OutputSink {
  constructor(
    private readonly outputs: Outputs,
    private readonly executionCount: number | null
  ) {}

  /** Whether this sink is writing at the moment: a change of the model that it did not make is somebody else's. */
  get isWriting(): boolean {
    return this.writing;
  }

  /** Whether the last op was drawn. */
  get isDone(): boolean {
    return this.done;
  }

  /** Draw the next ops; `anew`: they begin from an empty cell. */
  apply(ops: readonly CellOp[], anew: boolean): void {
    this.writing = true;
    try {
      if (anew) {
        this.card = null;
        this.forget();
        this.outputs.clear();
      }
      ops.forEach(op => this.draw(op));
    } finally {
      this.writing = false;
    }
  }

  private draw(op: CellOp): void {
    switch (op.op) {
      case 'card':
        this.drawCard(op);
        break;
      case 'clear':
        this.clear(op.wait ?? false);
        break;
      case 'update':
        this.update(op);
        break;
      case 'done':
        this.done = true;
        break;
      default:
        this.add(op);
    }
  }

  private drawCard(op: CellOp): void {
    const isFirst = this.card === null;
    this.card = display(op);
    if (isFirst) {
      this.outputs.add(this.card);
    } else {
      this.outputs.set(0, this.card);
    }
  }

  private add(op: CellOp): void {
    if (this.clearsNext) {
      this.clear(false);
    }
    const length = this.outputs.add(this.output(op));
    if (op.op === 'display' && op.display_id) {
      const places = this.places.get(op.display_id) ?? [];
      this.places.set(op.display_id, [...places, length - 1]);
    }
  }

  private output(op: CellOp): nbformat.IOutput {
    switch (op.op) {
      case 'stream':
        return {
          output_type: 'stream',
          name: op.name ?? 'stdout',
          text: op.text ?? ''
        };
      case 'error':
        return {
          output_type: 'error',
          ename: op.ename ?? '',
          evalue: op.evalue ?? '',
          traceback: op.traceback ?? []
        };
      case 'result':
        return {
          output_type: 'execute_result',
          data: (op.data ?? {}) as nbformat.IMimeBundle,
          metadata: (op.metadata ?? {}) as nbformat.OutputMetadata,
          execution_count: this.executionCount
        };
      default:
        return display(op);
    }
  }

  private update(op: CellOp): void {
    for (const place of this.places.get(op.display_id ?? '') ?? []) {
      this.outputs.set(place, display(op));
    }
  }

  /** Everything but the card goes. */
  private clear(wait: boolean): void {
    if (wait) {
      this.clearsNext = true;
      return;
    }
    this.forget();
    this.outputs.clear();
    if (this.card) {
      this.outputs.add(this.card);
    }
  }

  private forget(): void {
    this.clearsNext = false;
    this.places.clear();
  }

  private card: nbformat.IOutput | null = null;
  private clearsNext = false;
  private done = false;
  private writing = false;
  /** display_id -> where in the cell. */
  private readonly places = new Map<string, number[]>();
}

function display(op: CellOp): nbformat.IOutput {
  return {
    output_type: 'display_data',
    data: (op.data ?? {}) as nbformat.IMimeBundle,
    metadata: (op.metadata ?? {}) as nbformat.OutputMetadata
  };
}
