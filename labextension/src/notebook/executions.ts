/**
 * Whether a kernel still draws a cell into this page: its execution is under way, and the page hears of it.
 *
 * After a reload the kernel may well go on with the cell; but what it draws goes to the page that is gone.
 */
import { CodeCell } from '@jupyterlab/cells';
import { Kernel } from '@jupyterlab/services';

type Future = Kernel.IShellFuture;

/** How an execution of a cell stands. */
export class Executions {
  /** `onEnd`: an execution that was under way when it was asked for has ended, or its kernel is gone. */
  constructor(private readonly onEnd: () => void) {}

  isRunning(cell: CodeCell): boolean {
    const future = this.futureOf(cell);
    return future !== null && !future.isDisposed && !this.ended.has(future);
  }

  /** No later message of the execution reaches the cell, which somebody else draws from now on. */
  letGo(cell: CodeCell): void {
    this.futureOf(cell)?.dispose();
  }

  private futureOf(cell: CodeCell): Future | null {
    // Null before the first execution, whatever its type says.
    const future = (cell.outputArea?.future ?? null) as Future | null;
    if (future && !this.known.has(future)) {
      this.known.add(future);
      const end = () => {
        this.ended.add(future);
        this.onEnd();
      };
      future.done.then(end, end); // rejected when the kernel was restarted or is gone
    }
    return future;
  }

  private readonly known = new WeakSet<Future>();
  private readonly ended = new WeakSet<Future>();
}
