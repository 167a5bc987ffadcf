/** Follows one log: asks for it from where the reader stands, hands its text on, and never has more of it than was shown. */
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { ApiError } from '../api/errors';
import { StreamItem } from '../api/schemas';
import { IChannelStart, IStreams } from '../api/streams';
import { LogText } from './logText';

/** A log is begun with its last records: this many, or as many as this many bytes hold. */
export const TAIL_RECORDS = 5000;
export const TAIL_BYTES = 2 << 20;
/** Who follows and is behind by this much more than it takes to be shown, goes on at the end instead. */
const BEHIND_BYTES = 4 << 20;
const BEHIND_US = 5e6;
/** Who is behind by less has all there is. */
const UP_TO_DATE_US = 2e6;

/** Which log: of one rank, and of all attempts (null) or one. */
export interface ILog {
  job: string;
  rank: number;
  attempt: number | null;
}

/** Where the text goes. The promise is done when it is shown: more is asked for then. */
export interface ILogSink {
  write(text: string): Promise<void>;
  /** Nothing of what was shown belongs to what comes now. */
  clear(): void;
}

/** `paused`: nobody looks. */
export type FeedState = 'loading' | 'live' | 'paused' | 'ended' | 'failed';

export interface IFeedOptions {
  sink: ILogSink;
  /** A new reader, of the same log or another one. */
  text: () => LogText;
  /** Called before the text of these records is made, so that what it tells of can be looked up. */
  prepare?: (items: readonly StreamItem[]) => Promise<void>;
  /** Whether the job may still write, and the moment, in microseconds by the clock of the server, or that of its end. */
  writing: () => { isOver: boolean; untilUs: number };
  /** Whether the reader wants to be at the end, rather than to miss nothing. */
  isFollowing: () => boolean;
}

export class LogFeed implements IDisposable {
  constructor(
    private readonly streams: IStreams,
    log: ILog,
    private readonly options: IFeedOptions
  ) {
    this._log = log;
    this.text = options.text();
  }

  /** Something that a view shows has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get log(): ILog {
    return this._log;
  }

  get state(): FeedState {
    return this._state;
  }

  /** Why it failed; or, while it is live, why nothing comes. */
  get error(): ApiError | null {
    return this._error;
  }

  /** When something was last heard, by Date.now(). */
  get heardMs(): number | null {
    return this._heardMs;
  }

  /** Whether all that was written by now has come. */
  get isUpToDate(): boolean {
    return this._isUpToDate || this._state === 'ended';
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** The reader as it stands. */
  text: LogText;

  /** Somebody looks: begin, or go on where it stood. */
  resume(): void {
    if (this.channel === null && !this.isOver) {
      this.open(this._heardMs === null ? 'loading' : 'live');
    }
  }

  /** Nobody looks: nothing is asked for. */
  pause(): void {
    if (this.channel !== null) {
      this.close();
      this.become('paused');
    }
  }

  /** Show the log, or another one, anew: its end, or its beginning. */
  restart(from: 'end' | 'start', log: Partial<ILog> = {}): void {
    const isPaused = this._state === 'paused';
    this.close();
    this._log = { ...this._log, ...log };
    this.text = this.options.text();
    this.fromStart = from === 'start';
    this.caughtUpBytes = 0;
    this.options.sink.clear();
    this._heardMs = null;
    this._isUpToDate = false;
    if (isPaused) {
      this._changed.emit();
    } else {
      this.open('loading');
    }
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      this.close();
      Signal.clearData(this);
    }
  }

  // ---- the channel

  private get isOver(): boolean {
    return this._state === 'ended' || this._state === 'failed';
  }

  private open(state: FeedState): void {
    const turn = this.turn;
    const isCurrent = () => turn === this.turn;
    this.become(state);
    const channel = this.streams.open<StreamItem>({
      start: () => this.start(),
      onItems: items => this.enqueue(isCurrent, () => this.show(items)),
      onEnded: () => void this.enqueue(isCurrent, () => this.end()),
      onFailed: error => void this.enqueue(isCurrent, () => this.fail(error)),
      onAway: error => isCurrent() && this.become(this._state, error)
    });
    if (isCurrent()) {
      this.channel = channel;
    } else {
      channel.dispose(); // it was over before it was there
    }
  }

  private close(): void {
    this.turn += 1;
    this.channel?.dispose();
    this.channel = null;
  }

  /** Asked for at each connection. */
  private start(): IChannelStart {
    const { job, rank, attempt } = this._log;
    const query: Record<string, string> = { rank: String(rank), follow: '1' };
    if (attempt !== null) {
      query.only_attempt = String(attempt);
    }
    const { cursor } = this.text;
    if (this.wantsTail || (cursor === null && !this.fromStart)) {
      query.tail = String(TAIL_RECORDS);
      query.tail_bytes = String(TAIL_BYTES);
    } else if (cursor !== null) {
      query.attempt = String(cursor.attempt);
      query.offset = String(cursor.offset);
    }
    return { path: `jobs/${job}/log`, query };
  }

  /** One after another: text that is being written comes before what was received after it. */
  private enqueue(
    isCurrent: () => boolean,
    work: () => void | Promise<void>
  ): Promise<void> {
    const turn = () => (isCurrent() ? work() : undefined);
    this.queue = this.queue.then(turn).catch(reason => {
      console.error('The log could not be shown.', reason);
    });
    return this.queue;
  }

  private async show(items: StreamItem[]): Promise<void> {
    const { text, turn } = this;
    this._heardMs = Date.now();
    await this.options.prepare?.(items);
    if (turn !== this.turn) {
      return;
    }
    this.wantsTail = false;
    const ready = text.take(items);
    this.become('live');
    if (ready) {
      await this.options.sink.write(ready);
    }
    if (turn === this.turn && this.isFarBehind(items)) {
      this.close();
      text.skip();
      this.caughtUpBytes = text.takenBytes;
      this.wantsTail = true;
      this.open('live');
    }
  }

  /** Whether so much comes that what is shown falls ever farther behind what is written. */
  private isFarBehind(items: readonly StreamItem[]): boolean {
    const { text } = this;
    const { isOver, untilUs } = this.options.writing();
    const isFlowing =
      items.length > 0 && items[items.length - 1].type === 'record';
    const behindUs = isFlowing ? untilUs - (text.newestUs ?? untilUs) : 0;
    const isUpToDate = !isFlowing || (!isOver && behindUs < UP_TO_DATE_US);
    if (isUpToDate !== this._isUpToDate) {
      this._isUpToDate = isUpToDate;
      this._changed.emit();
    }
    if (behindUs < BEHIND_US || !this.options.isFollowing()) {
      this.caughtUpBytes = text.takenBytes;
      return false;
    }
    return text.takenBytes - this.caughtUpBytes > BEHIND_BYTES;
  }

  private end(): void {
    this.channel = null;
    this.become('ended');
  }

  private fail(error: ApiError): void {
    this.channel = null;
    this.become('failed', error);
  }

  private become(state: FeedState, error: ApiError | null = null): void {
    this._state = state;
    this._error = error;
    this._changed.emit();
  }

  private channel: IDisposable | null = null;
  private queue: Promise<void> = Promise.resolve();
  /** Counts channels: what belongs to an earlier one is dropped. */
  private turn = 0;
  private fromStart = false;
  private wantsTail = false;
  private caughtUpBytes = 0;
  private _log: ILog;
  private _state: FeedState = 'paused';
  private _error: ApiError | null = null;
  private _heardMs: number | null = null;
  private _isUpToDate = false;
  private _isDisposed = false;
  private readonly _changed = new Signal<this, void>(this);
}
