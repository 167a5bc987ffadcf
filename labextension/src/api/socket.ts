/** The page's channels and claims over one WebSocket, which is open only while somebody needs it. */
import { ServerConnection } from '@jupyterlab/services';
import { nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';

import { Channel } from './channel';
import { Claims } from './claims';
import { Answer, Connection, Request } from './connection';
import { ApiError } from './errors';
import { Page } from './page';
import { Claimed } from './schemas';
import { IChannelHandler, IClaim, IStreams } from './streams';

/** An idle connection is kept for so long: a panel that is closed and opened again does not cost a new one. */
const LINGER_MS = 5_000;

export class StreamSocket implements IStreams {
  constructor(
    settings: ServerConnection.ISettings,
    trans: TranslationBundle = nullTranslator.load('jupyter_gpucluster'),
    private readonly page = new Page()
  ) {
    const events = {
      onConnected: () => this.onConnected(),
      onAnswer: (answer: Answer) => this.onAnswer(answer),
      onLost: (error: ApiError) => this.onLost(error),
      onRefused: (error: ApiError) => this.onRefused(error)
    };
    this.connection = new Connection(settings, events, trans);
    page.watchedChanged.connect(() => this.onWatchedChanged());
    page.woke.connect(() => this.retry());
  }

  open<T>(handler: IChannelHandler<T>): IDisposable {
    const channel = new Channel(handler as IChannelHandler<unknown>, {
      nextNumber: channel => this.number(channel),
      send: request => this.send(request),
      over: channel => this.forget(channel)
    });
    this.channels.add(channel);
    if (this.refusal) {
      // Not from within the caller's own call.
      void Promise.resolve(this.refusal).then(error => {
        if (this.channels.has(channel)) {
          channel.fail(error);
        }
      });
    } else {
      this.settle();
      if (this.connection.isConnected && this.goesOn(channel)) {
        channel.begin();
      }
    }
    return new DisposableDelegate(() => channel.end());
  }

  claim(
    key: string,
    role: 'kernel' | 'log',
    onChange: (claimed: Pick<Claimed, 'granted' | 'holder'>) => void
  ): IClaim {
    return this.claims.add(key, role, onChange);
  }

  retry(): void {
    this.connection.retry();
    this.channels.forEach(channel => channel.retry());
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  dispose(): void {
    this.disposed = true;
    window.clearTimeout(this.linger);
    this.channels.forEach(channel => channel.halt());
    this.channels.clear();
    this.connection.close();
    this.page.dispose();
  }

  private onConnected(): void {
    this.claims.sendAll();
    this.channels.forEach(channel => {
      if (this.goesOn(channel)) {
        channel.begin();
      }
    });
  }

  private onAnswer(answer: Answer): void {
    if (answer.type === 'claimed') {
      this.claims.receive(answer);
      return;
    }
    const channel = this.byNumber.get(answer.channel);
    if (answer.type !== 'items') {
      this.byNumber.delete(answer.channel);
    }
    if (channel && channel.number === answer.channel) {
      channel.receive(answer);
    }
  }

  private onLost(error: ApiError): void {
    this.byNumber.clear();
    this.claims.lost();
    [...this.channels].forEach(channel => {
      channel.halt();
      if (this.goesOn(channel)) {
        channel.away(error);
      }
    });
  }

  private onRefused(error: ApiError): void {
    this.refusal = error;
    this.claims.lost();
    [...this.channels].forEach(channel => channel.fail(error));
  }

  private onWatchedChanged(): void {
    this.channels.forEach(channel => {
      if (!this.goesOn(channel)) {
        channel.close();
      } else if (this.connection.isConnected && channel.number === null) {
        channel.begin();
      }
    });
    this.settle();
  }

  private number(channel: Channel): number {
    this.lastNumber += 1;
    this.byNumber.set(this.lastNumber, channel);
    return this.lastNumber;
  }

  private send(request: Request): void {
    if (request.type === 'close') {
      this.byNumber.delete(request.channel);
    }
    if (this.connection.isConnected) {
      this.connection.send(request);
    }
  }

  private forget(channel: Channel): void {
    this.channels.delete(channel);
    this.settle();
  }

  private goesOn(channel: Channel): boolean {
    return !this.page.isUnwatched || channel.keepsOnWhenHidden;
  }

  /** Open while there is something to carry; closed a moment after there is nothing, or nobody looks. */
  private settle(): void {
    if (this.disposed) {
      return;
    }
    const isNeeded =
      !this.claims.isEmpty || [...this.channels].some(c => this.goesOn(c));
    if (isNeeded) {
      window.clearTimeout(this.linger);
      this.linger = 0;
      this.connection.open();
    } else if (this.linger === 0) {
      const waitMs = this.page.isUnwatched ? 0 : LINGER_MS;
      this.linger = window.setTimeout(() => {
        this.linger = 0;
        this.connection.close();
      }, waitMs);
    }
  }

  private readonly connection: Connection;
  private readonly claims = new Claims({
    send: request => this.send(request),
    changed: () => this.settle()
  });
  private readonly channels = new Set<Channel>();
  private readonly byNumber = new Map<number, Channel>();
  private lastNumber = 0;
  private refusal: ApiError | null = null;
  private linger = 0;
  private disposed = false;
}
