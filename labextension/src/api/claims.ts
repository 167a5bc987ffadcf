/** The page's claims to cells: for each cell one is put to the server, a kernel's before others, then the oldest. */
import { Request } from './connection';
import { Claimed } from './schemas';
import { IClaim } from './streams';

type Role = 'kernel' | 'log';
type Standing = Pick<Claimed, 'granted' | 'holder'>;

/** Of streams.py: for a key that is longer, or no text, the server ends the page's whole connection. */
const MAX_KEY = 2000;
const NO_TEXT = /\p{Surrogate}/u;

const WAITING: Standing = { granted: false, holder: null };

/** One who wants to draw a cell. */
class Claimant implements IClaim {
  constructor(
    readonly key: string,
    readonly role: Role,
    private readonly onChange: (standing: Standing) => void,
    private readonly onDispose: (claimant: Claimant) => void
  ) {}

  get granted(): boolean {
    return this.standing?.granted ?? false;
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    if (!this.disposed) {
      this.disposed = true;
      this.onDispose(this);
    }
  }

  tell(standing: Standing): void {
    const { granted, holder } = standing;
    const known = this.standing;
    if (
      this.disposed ||
      (known?.granted === granted && known.holder === holder)
    ) {
      return;
    }
    this.standing = standing;
    try {
      this.onChange(standing);
    } catch (error) {
      console.error('GPU cluster: a claim could not be followed:', error);
    }
  }

  private standing: Standing | null = null;
  private disposed = false;
}

export class Claims {
  constructor(
    private readonly post: {
      /** Nothing happens while there is no connection: `sendAll()` comes later. */
      send(request: Request): void;
      changed(): void;
    }
  ) {}

  get isEmpty(): boolean {
    return this.claimants.size === 0;
  }

  /** A key that the server does not take is never granted; a notebook may have cells of any id. */
  add(key: string, role: Role, onChange: (standing: Standing) => void): IClaim {
    if (key.length > MAX_KEY || NO_TEXT.test(key)) {
      console.warn('GPU cluster: a cell with such an id cannot be claimed.');
      const never = new Claimant(key, role, onChange, () => undefined);
      never.tell(WAITING);
      return never;
    }
    const claimant = new Claimant(key, role, onChange, gone =>
      this.remove(gone)
    );
    const before = this.first(key);
    this.claimants.set(key, [...this.of(key), claimant]);
    this.post.changed();
    this.settle(key, before);
    const first = this.first(key);
    claimant.tell(
      first?.granted ? { granted: false, holder: first.role } : WAITING
    );
    return claimant;
  }

  /** A connection came about. */
  sendAll(): void {
    for (const key of this.claimants.keys()) {
      this.settle(key, undefined);
    }
  }

  /** The connection is gone: nobody is granted anything. */
  lost(): void {
    for (const key of this.claimants.keys()) {
      this.of(key).forEach(claimant => claimant.tell(WAITING));
    }
  }

  receive({ key, granted, holder }: Claimed): void {
    const first = this.first(key);
    for (const claimant of this.of(key)) {
      claimant.tell(
        claimant === first
          ? { granted, holder: holder ?? null }
          : { granted: false, holder: granted ? first!.role : (holder ?? null) }
      );
    }
  }

  private remove(gone: Claimant): void {
    const key = gone.key;
    const before = this.first(key);
    const left = this.of(key).filter(claimant => claimant !== gone);
    if (left.length > 0) {
      this.claimants.set(key, left);
    } else {
      this.claimants.delete(key);
    }
    this.settle(key, before);
    this.post.changed();
  }

  /** Put the first one's claim to the server, if that is another one than `before`. */
  private settle(key: string, before: Claimant | undefined): void {
    const first = this.first(key);
    if (first === before) {
      return;
    }
    before?.tell(WAITING);
    // A page has one claim to a cell: another one takes its place, and no other page gets the cell in between.
    this.post.send(
      first
        ? { type: 'claim', key, role: first.role }
        : { type: 'release', key }
    );
  }

  private of(key: string): Claimant[] {
    return this.claimants.get(key) ?? [];
  }

  private first(key: string): Claimant | undefined {
    const all = this.of(key);
    return all.find(claimant => claimant.role === 'kernel') ?? all[0];
  }

  private readonly claimants = new Map<string, Claimant[]>();
}
