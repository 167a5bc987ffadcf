/** Calls a function at most once a frame, however often it is asked for. */
import { IDisposable } from '@lumino/disposable';

/** A hidden tab draws no frames. */
const WITHOUT_FRAMES_MS = 250;

export class OncePerFrame implements IDisposable {
  constructor(private readonly call: () => void) {}

  /** Call it with the next frame. */
  ask(): void {
    if (this.timer !== 0 || this.isDisposed) {
      return;
    }
    this.timer = window.setTimeout(this.run, WITHOUT_FRAMES_MS);
    this.frame = window.requestAnimationFrame(this.run);
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    this.disposed = true;
    this.clear();
  }

  private readonly run = (): void => {
    this.clear();
    this.call();
  };

  private clear(): void {
    window.clearTimeout(this.timer);
    window.cancelAnimationFrame(this.frame);
    this.timer = 0;
  }

  private timer = 0;
  private frame = 0;
  private disposed = false;
}
