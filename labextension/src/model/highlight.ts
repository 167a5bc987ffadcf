/** The job that is shown up wherever it appears: in the topology and in the list of jobs. */
import { ISignal, Signal } from '@lumino/signaling';

/**
 * One job by its number: `hovered` while the pointer or the keyboard is on it somewhere, `pinned` until something else
 * is picked. All views of the page share `highlight`.
 */
export class Highlight {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** What counts now. */
  get job(): number | null {
    return this._hovered ?? this._pinned;
  }

  get pinned(): number | null {
    return this._pinned;
  }

  hover(job: number | null): void {
    const before = this.job;
    this._hovered = job;
    if (this.job !== before) {
      this._changed.emit();
    }
  }

  /** Null: nothing any more. */
  pin(job: number | null): void {
    if (this._pinned !== job) {
      this._pinned = job;
      this._changed.emit();
    }
  }

  /** Pin a job, or let it go when it is pinned already. */
  toggle(job: number | null): void {
    this.pin(job === this._pinned ? null : job);
  }

  private _changed = new Signal<this, void>(this);
  private _hovered: number | null = null;
  private _pinned: number | null = null;
}

export const highlight = new Highlight();
