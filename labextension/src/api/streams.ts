/** The page's one WebSocket and the channels on it: see jupyter_gpucluster/server_extension/messages.py. */
import { IDisposable } from '@lumino/disposable';

import { ApiError } from './errors';
import { CellQuery, Claimed } from './schemas';

/** Where a channel begins; asked again after each reconnection, so that it goes on where it stood. */
export interface IChannelStart {
  path: string;
  query?: Record<string, string>;
  cell?: CellQuery;
}

/** What its owner does with a channel. */
export interface IChannelHandler<T> {
  start(): IChannelStart;
  /** Before the first lines of each stream: what follows belongs to the newest `start()`. */
  onOpen?(): void;
  /** Lines in their order. Acknowledged when the returned promise is done: a slow reader slows its channel alone. */
  onItems(items: T[]): void | Promise<void>;
  /** The stream came to its end. The channel is over. */
  onEnded?(): void;
  /** A lasting error (not found, forbidden …): the channel is over. What passes is retried and not told here. */
  onFailed?(error: ApiError): void;
  /** The scheduler, or the way to it, is away (`error`), or back (null). */
  onAway?(error: ApiError | null): void;
  /** While the browser's tab has been hidden for a while: `pause` (default), begun anew by `start()` later, or `keep` on. */
  readonly whenHidden?: 'keep' | 'pause';
}

/** A claim to a cell; disposing it gives it up. */
export interface IClaim extends IDisposable {
  readonly granted: boolean;
}

/** All channels of the page over one WebSocket, which is open only while there are any. */
export interface IStreams extends IDisposable {
  open<T>(handler: IChannelHandler<T>): IDisposable;
  /** `onChange`: told how it stands, at once and whenever that changes; after a lost connection it is not granted. */
  claim(
    key: string,
    role: 'kernel' | 'log',
    onChange: (claimed: Pick<Claimed, 'granted' | 'holder'>) => void
  ): IClaim;
  /** Reconnect now instead of after the back-off. */
  retry(): void;
}
