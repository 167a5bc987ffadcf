/** A terminal that only shows: bounded, silent towards whoever wrote the text, and never ahead of what it has drawn. */
import { TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import type { FitAddon } from '@xterm/addon-fit';
import type { ISearchOptions, SearchAddon } from '@xterm/addon-search';
import type { ITerminalOptions, Terminal } from '@xterm/xterm';

import { ILogSink } from '../model/logFeed';
import { quiet } from './logQuiet';
import { fontOf, searchColours, themeOf } from './logTheme';

/** Lines that can be scrolled back to. */
export const SCROLLBACK = 20_000;
/** Text is handed on in pieces: the page answers between two of them. */
const PIECE_CHARS = 32 << 10;
const PIECE_LINES = 500;
/** The search looks through new lines when none have come for 0.2 s: so long, and a little, it is given between them. */
const SEARCH_PAUSE_MS = 300;
/** Matches that are counted and marked; of more it is only said that there are more. */
export const MATCHES_SHOWN = 1000;

export interface ISearch {
  text: string;
  isCaseSensitive: boolean;
  isPattern: boolean;
}

/** `at`: which match is shown, from 0; -1 when that is not known. */
export interface IFound {
  count: number;
  at: number;
}

/** The parts of xterm.js that are loaded when the first log is opened. */
export async function loadTerminal(): Promise<{
  Terminal: new (options: ITerminalOptions) => Terminal;
  FitAddon: new () => FitAddon;
  SearchAddon: new (options: { highlightLimit: number }) => SearchAddon;
}> {
  const [{ Terminal }, { FitAddon }, { SearchAddon }] = await Promise.all([
    import('@xterm/xterm'),
    import('@xterm/addon-fit'),
    import('@xterm/addon-search'),
    import('@xterm/xterm/css/xterm.css')
  ]);
  return { Terminal, FitAddon, SearchAddon };
}

export class LogTerminal implements ILogSink, IDisposable {
  /** Loads xterm.js and opens a terminal in `host`, which stands in the page. */
  static async open(
    host: HTMLElement,
    trans: TranslationBundle
  ): Promise<LogTerminal> {
    const { Terminal, FitAddon, SearchAddon } = await loadTerminal();
    const terminal = new Terminal(optionsOf(host));
    const fitting = new FitAddon();
    const searching = new SearchAddon({ highlightLimit: MATCHES_SHOWN });
    terminal.loadAddon(fitting);
    terminal.loadAddon(searching);
    quiet(terminal);
    terminal.open(host);
    terminal.textarea?.setAttribute('aria-label', trans.__('Log'));
    return new LogTerminal(host, terminal, fitting, searching);
  }

  constructor(
    private readonly host: HTMLElement,
    private readonly terminal: Terminal,
    private readonly fitting: Pick<FitAddon, 'fit'>,
    private readonly searching: SearchAddon
  ) {
    terminal.onScroll(() => this.onScroll());
    terminal.attachCustomKeyEventHandler(event => this.onKey(event));
    searching.onDidChangeResults(({ resultCount, resultIndex }) => {
      this._found = { count: resultCount, at: resultIndex };
      this._changed.emit();
    });
  }

  /** Something that a view shows has changed: following, counts, matches. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Whether the end stays in view. Ends when the user scrolls up, begins when the user scrolls to the end. */
  get isFollowing(): boolean {
    return this._isFollowing;
  }

  set isFollowing(follow: boolean) {
    const { active } = this.terminal.buffer;
    if (follow) {
      this.terminal.scrollToBottom();
      this.follow(true);
      return;
    }
    this.follow(false);
    if (active.baseY === 0) {
      this.isStaying = true;
    }
    this.leaveEnd();
  }

  /** Show a log page by page, from its beginning on: its end is not gone to until all has come. */
  isPaging = false;

  /** Lines that came since the end was left. */
  get newLines(): number {
    return this._newLines;
  }

  /** There is more, and showing it would push out what the user reads: it waits until the user reads on. */
  get isHolding(): boolean {
    return this.goOn !== null;
  }

  /** Lines have been pushed out at the top. */
  get isFull(): boolean {
    return this._isFull;
  }

  get found(): IFound {
    return this._found;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      this.turn += 1;
      this.release();
      this.terminal.dispose();
      Signal.clearData(this);
    }
  }

  // ---- text

  write(text: string): Promise<void> {
    const turn = this.turn;
    this.written = this.written.then(() => this.writePieces(text, turn));
    return this.written;
  }

  clear(): void {
    this.turn += 1;
    this.release();
    this.written = this.written.then(() => {
      if (!this._isDisposed) {
        this.isStaying = true; // no scrolling of the user's
        this.terminal.reset();
        this.isStaying = !this._isFollowing;
        this.clearSearch();
      }
    });
    this._newLines = 0;
    this._isFull = false;
    this._changed.emit();
  }

  private async writePieces(text: string, turn: number): Promise<void> {
    for (const piece of pieces(text)) {
      const lines = rowsOf(piece, this.terminal.cols);
      await this.room(lines);
      if (turn !== this.turn) {
        return;
      }
      this.leaveEnd();
      await new Promise<void>(done => this.terminal.write(piece, done));
      if (turn !== this.turn) {
        return;
      }
      this.onWritten(lines);
    }
    if (this.isFinding) {
      await new Promise(done => window.setTimeout(done, SEARCH_PAUSE_MS));
    }
  }

  /** Until `lines` more push out nothing that the user has yet to read. */
  private async room(lines: number): Promise<void> {
    const turn = this.turn;
    while (turn === this.turn && !this.hasRoom(lines)) {
      const released = new Promise<void>(done => (this.goOn = done));
      this._changed.emit();
      await released;
    }
  }

  private hasRoom(lines: number): boolean {
    const { baseY, viewportY } = this.terminal.buffer.active;
    return this._isFollowing || baseY + lines - SCROLLBACK <= viewportY;
  }

  private release(): void {
    const { goOn } = this;
    this.goOn = null;
    goOn?.();
  }

  private onWritten(lines: number): void {
    const { active } = this.terminal.buffer;
    if (this.isStaying && active.baseY > 0) {
      this.terminal.scrollToTop();
      this.isStaying = false;
    }
    const wasFull = this._isFull;
    this._isFull = active.baseY >= SCROLLBACK;
    if (!this._isFollowing) {
      this._newLines += lines;
    }
    if (!this._isFollowing || wasFull !== this._isFull) {
      this._changed.emit();
    }
  }

  // ---- scrolling

  /** A terminal at its end goes along with what comes; who does not follow stands one line above. */
  private leaveEnd(): void {
    const { baseY, viewportY } = this.terminal.buffer.active;
    if (!this._isFollowing && baseY > 0 && viewportY >= baseY) {
      this.isLeaving = true;
      this.terminal.scrollLines(-1);
      this.isLeaving = false;
    }
  }

  private onScroll(): void {
    const { baseY, viewportY } = this.terminal.buffer.active;
    const isAtEnd = viewportY >= baseY;
    if (!this.isStaying && !this.isLeaving && !(this.isPaging && isAtEnd)) {
      this.follow(isAtEnd);
    }
    if (this.goOn && viewportY > 0) {
      this.release();
    }
  }

  private follow(follow: boolean): void {
    if (follow === this._isFollowing) {
      return;
    }
    this._isFollowing = follow;
    this.isPaging &&= !follow;
    this.isStaying = false;
    this._newLines = 0;
    if (follow) {
      this.release();
    }
    this._changed.emit();
  }

  /** Keys scroll, and all others are the browser's and Lab's: nothing is ever sent to the job. */
  private onKey(event: KeyboardEvent): boolean {
    const scroll = event.type === 'keydown' ? this.keys[event.key] : undefined;
    if (scroll && !event.ctrlKey && !event.metaKey && !event.altKey) {
      scroll();
      event.preventDefault();
    } else if (event.key === 'a' && (event.ctrlKey || event.metaKey)) {
      this.terminal.selectAll();
      event.preventDefault();
    }
    return false;
  }

  private readonly keys: Record<string, () => void> = {
    ArrowUp: () => this.terminal.scrollLines(-1),
    ArrowDown: () => this.terminal.scrollLines(1),
    PageUp: () => this.terminal.scrollPages(-1),
    PageDown: () => this.terminal.scrollPages(1),
    Home: () => this.terminal.scrollToTop(),
    End: () => this.terminal.scrollToBottom()
  };

  // ---- the rest

  /** What is selected; else all that can be scrolled to. */
  get text(): string {
    if (this.terminal.hasSelection()) {
      return this.terminal.getSelection();
    }
    const { active } = this.terminal.buffer;
    let text = '';
    for (let row = 0; row < active.length; row++) {
      const line = active.getLine(row);
      const isCut = active.getLine(row + 1)?.isWrapped ?? false;
      text += (line?.translateToString(!isCut) ?? '') + (isCut ? '' : '\n');
    }
    return text.replace(/\n+$/, '\n');
  }

  focus(): void {
    this.terminal.focus();
  }

  fit(): void {
    const { terminal } = this;
    const { cols } = terminal;
    const { viewportY } = terminal.buffer.active;
    this.fitting.fit();
    if (!this._isFollowing && terminal.cols === cols) {
      terminal.scrollToLine(viewportY); // fewer rows are taken from the top otherwise
    }
  }

  /** Take over the colours and the font of the page. */
  restyle(): void {
    this.terminal.options.theme = themeOf(this.host, this.isFinding);
    Object.assign(this.terminal.options, fontOf(this.host));
  }

  /** Go to the next or the previous match. */
  find(
    search: ISearch,
    direction: 'next' | 'previous',
    isTyping = false
  ): void {
    const { isCaseSensitive, isPattern } = search;
    this.isFollowing = false; // or the match would be carried out of view
    if (!this.isFinding) {
      this.isFinding = true; // the match that is shown is the selection, and gets its colour
      this.restyle();
    }
    const kind = `${isCaseSensitive} ${isPattern}`;
    if (kind !== this.searchKind) {
      this.searchKind = kind;
      this.searching.clearDecorations(); // it takes other options of the same text for nothing new
    }
    const options: ISearchOptions = {
      caseSensitive: isCaseSensitive,
      regex: isPattern,
      decorations: searchColours(this.host)
    };
    if (direction === 'next') {
      this.searching.findNext(search.text, {
        ...options,
        incremental: isTyping
      });
    } else {
      this.searching.findPrevious(search.text, options);
    }
  }

  clearSearch(): void {
    this.searching.clearDecorations();
    this.terminal.clearSelection();
    if (this.isFinding) {
      this.isFinding = false;
      this.restyle();
    }
    this._found = NOTHING;
    this._changed.emit();
  }

  private written: Promise<void> = Promise.resolve();
  /** Counts what was cleared: text of before is dropped. */
  private turn = 0;
  private goOn: (() => void) | null = null;
  /** All there is fits: with more the view shall stay at the top, where a terminal would go along. */
  private isStaying = false;
  private isLeaving = false;
  private _isFollowing = true;
  private _newLines = 0;
  private _isFull = false;
  private _found: IFound = NOTHING;
  private isFinding = false;
  private searchKind = '';
  private _isDisposed = false;
  private readonly _changed = new Signal<this, void>(this);
}

const NOTHING: IFound = { count: 0, at: -1 };

function optionsOf(host: HTMLElement): ITerminalOptions {
  return {
    ...fontOf(host),
    theme: themeOf(host, false),
    scrollback: SCROLLBACK,
    convertEol: true,
    disableStdin: true,
    cursorStyle: 'bar',
    cursorInactiveStyle: 'none',
    cursorBlink: false,
    screenReaderMode: true,
    minimumContrastRatio: 4.5,
    allowProposedApi: true // marks of matches
  };
}

/** The text in pieces of which each is drawn at once. */
export function* pieces(text: string): Iterable<string> {
  for (let start = 0; start < text.length;) {
    const limit = Math.min(start + PIECE_CHARS, text.length);
    let end = start;
    for (let lines = 0; lines < PIECE_LINES; lines++) {
      const next = text.indexOf('\n', end) + 1;
      if (next === 0 || next > limit) {
        end = limit;
        break;
      }
      end = next;
    }
    yield text.slice(start, end);
    start = end;
  }
}

/** How many rows a text takes, about. */
function rowsOf(text: string, columns: number): number {
  let lines = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) {
    lines += 1;
  }
  return Math.max(lines, Math.floor(text.length / Math.max(columns, 1)));
}
