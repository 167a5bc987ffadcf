/** Who may be at it: so many at a time, the others in the order in which they came. */
import { DisposableDelegate, IDisposable } from '@lumino/disposable';

export class Turns {
  constructor(private readonly most: number) {}

  /** Calls `go` once it is one's turn, now maybe. Disposing gives up the turn, or the place in line. */
  take(go: () => void): IDisposable {
    this.line.add(go);
    this.move();
    return new DisposableDelegate(() => {
      this.line.delete(go);
      if (this.busy.delete(go)) {
        this.move();
      }
    });
  }

  private move(): void {
    for (const go of this.line) {
      if (this.busy.size >= this.most) {
        return;
      }
      this.line.delete(go);
      this.busy.add(go);
      go();
    }
  }

  private readonly line = new Set<() => void>();
  private readonly busy = new Set<() => void>();
}
