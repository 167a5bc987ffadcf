/** The file behind an open notebook: saved only where that asks nobody anything. */
import { DocumentRegistry } from '@jupyterlab/docregistry';
import { Contents } from '@jupyterlab/services';

/** A save that takes longer is one that Lab asks the user about; one whose question was cancelled never says so. */
const PATIENCE_MS = 10_000;
/** Times of one save may differ by so much; Lab allows the same. */
const MARGIN_MS = 500;

export class DocumentFile {
  constructor(
    private readonly context: DocumentRegistry.Context,
    private readonly contents: Contents.IManager
  ) {
    context.saveState.connect((_, state) => {
      this.saving = state === 'started';
      if (!this.saving) {
        this.saved.forEach(resolve => resolve());
        this.saved = [];
      }
    });
  }

  /** Relative to the server's root, without the name of a drive. */
  get path(): string {
    return this.context.localPath;
  }

  get isDirty(): boolean {
    return this.context.model.dirty;
  }

  /** Call `slot` whenever everything of the page is in the file. */
  onClean(slot: () => void): void {
    this.context.model.stateChanged.connect((_, change) => {
      if (change.name === 'dirty' && !this.isDirty) {
        slot();
      }
    });
  }

  /** When the file was saved last, as far as this page knows, by the server's clock; 0 = unknown. */
  get savedMs(): number {
    const said = this.context.contentsModel?.last_modified;
    return said ? Date.parse(said) : 0;
  }

  /** Whether a job's notebook path, absolute or relative to a folder above, may be this file's. */
  isNamed(path: string | null): boolean {
    return (
      path !== null && (path === this.path || path.endsWith(`/${this.path}`))
    );
  }

  /** Show what another page has saved meanwhile, if it did and nothing is unsaved here; whether it was taken. */
  async takeNewer(): Promise<boolean> {
    if (this.isDirty || !(await this.isNewerOnDisk())) {
      return false;
    }
    if (this.isDirty || this.context.isDisposed) {
      return false; // changed while it was looked up
    }
    return done(this.context.revert());
  }

  /** Save what is unsaved, unless that would end in a question: read-only, or changed by somebody else. */
  save(): Promise<void> {
    this.next ??= this.last.then(() => this.saveNext());
    return this.next;
  }

  private async saveNext(): Promise<void> {
    const maySave = await this.maySave();
    this.next = null; // what changes from now on needs one more
    this.last = maySave ? done(this.context.save()) : Promise.resolve(false);
    await this.last;
  }

  /** Asked when nobody else is saving: two at once would look like a conflict. */
  private async maySave(): Promise<boolean> {
    const { context } = this;
    let isNewer: boolean | null = null;
    do {
      await this.untilSaved();
      if (
        this.saving ||
        context.isDisposed ||
        !context.contentsModel?.writable
      ) {
        return false;
      }
      isNewer = await this.isNewerOnDisk();
    } while (this.saving);
    return isNewer === false && this.isDirty && !context.isDisposed;
  }

  private async untilSaved(): Promise<void> {
    if (this.saving) {
      await new Promise<void>(resolve => {
        this.saved.push(resolve);
        setTimeout(resolve, PATIENCE_MS);
      });
    }
  }

  /** As far as can be told: a server that is away tells nothing. */
  private async isNewerOnDisk(): Promise<boolean | null> {
    try {
      const path = this.context.path;
      const there = await this.contents.get(path, { content: false });
      return Date.parse(there.last_modified) > this.savedMs + MARGIN_MS;
    } catch {
      return null;
    }
  }

  private next: Promise<void> | null = null;
  private last: Promise<unknown> = Promise.resolve();
  private saving = false;
  private saved: (() => void)[] = [];
}

/** Whether it was done. Of what went wrong Lab itself has told the user. */
function done(work: Promise<void>): Promise<boolean> {
  return work.then(
    () => true,
    () => false
  );
}
