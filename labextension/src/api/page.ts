/** What the browser says of this page: whether somebody may be looking, and when it is worth trying the network again. */
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

/** A tab that is hidden for longer is left alone: a quick look at another tab costs nothing. */
const AWAY_AFTER_MS = 30_000;

export class Page implements IDisposable {
  constructor() {
    document.addEventListener('visibilitychange', this.onVisibility);
    window.addEventListener('online', this.onOnline);
    this.onVisibility();
  }

  /** Hidden for more than a moment. */
  get isUnwatched(): boolean {
    return this.unwatched;
  }

  /** `isUnwatched` changed. */
  get watchedChanged(): ISignal<this, boolean> {
    return this._watchedChanged;
  }

  /** The page became visible, or the network came back. */
  get woke(): ISignal<this, void> {
    return this._woke;
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    this.disposed = true;
    window.clearTimeout(this.timer);
    document.removeEventListener('visibilitychange', this.onVisibility);
    window.removeEventListener('online', this.onOnline);
    Signal.clearData(this);
  }

  private readonly onVisibility = (): void => {
    window.clearTimeout(this.timer);
    if (document.visibilityState === 'hidden') {
      this.timer = window.setTimeout(() => this.set(true), AWAY_AFTER_MS);
      return;
    }
    this.set(false);
    this._woke.emit();
  };

  private readonly onOnline = (): void => this._woke.emit();

  private set(unwatched: boolean): void {
    if (unwatched !== this.unwatched) {
      this.unwatched = unwatched;
      this._watchedChanged.emit(unwatched);
    }
  }

  private readonly _watchedChanged = new Signal<this, boolean>(this);
  private readonly _woke = new Signal<this, void>(this);
  private timer = 0;
  private unwatched = false;
  private disposed = false;
}
