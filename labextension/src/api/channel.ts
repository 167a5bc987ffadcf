/** One channel of the page's WebSocket: it begins anew after every loss, and acknowledges what its owner has dealt with. */
import { Backoff } from './backoff';
import { Request } from './connection';
import { ApiError } from './errors';
import { Ended, Failed, Items } from './schemas';
import { IChannelHandler } from './streams';

export class Channel {
  constructor(
    private readonly handler: IChannelHandler<unknown>,
    private readonly post: {
      nextNumber(channel: Channel): number;
      send(request: Request): void;
      over(channel: Channel): void;
    }
  ) {}

  /** Its number on the present connection; null while it is not open. */
  get number(): number | null {
    return this.open;
  }

  get keepsOnWhenHidden(): boolean {
    return this.handler.whenHidden === 'keep';
  }

  /** Ask the owner where it stands and begin there, once the owner is done with what it has in hand. */
  begin(): void {
    this.halt();
    this.isWanted = true;
    if (!this.isBusy) {
      this.start();
    }
  }

  /** The connection is gone, or the channel shall rest: nothing more comes until `begin()`. */
  halt(): void {
    window.clearTimeout(this.timer);
    this.timer = 0;
    this.isWanted = false;
    this.queue = [];
    this.open = null;
  }

  /** As `halt()`, and the other side is told. */
  close(): void {
    if (this.open !== null) {
      this.post.send({ type: 'close', channel: this.open });
    }
    this.halt();
  }

  /** The owner wants nothing more. */
  end(): void {
    this.close();
    this.over();
  }

  /** Do not wait for the back-off. */
  retry(): void {
    if (this.timer !== 0) {
      this.backoff.reset();
      this.begin();
    }
  }

  away(error: ApiError): void {
    this.isAway = true;
    safely(() => this.handler.onAway?.(error));
  }

  fail(error: ApiError): void {
    this.over();
    safely(() => this.handler.onFailed?.(error));
  }

  receive(answer: Items | Ended | Failed): void {
    this.queue.push(answer);
    if (!this.isBusy) {
      void this.work();
    }
  }

  private start(): void {
    const begin = safely(() => this.handler.start());
    if (!begin) {
      this.over();
      return;
    }
    const { path, query, cell } = begin;
    this.open = this.post.nextNumber(this);
    this.isFresh = true;
    this.post.send({
      type: 'open',
      channel: this.open,
      path,
      query: query ?? {},
      ...(cell ? { cell } : {})
    });
  }

  /** What has come, one after the other; no second one while the owner is busy with the first. */
  private async work(): Promise<void> {
    this.isBusy = true;
    for (let answer = this.queue.shift(); answer; answer = this.queue.shift()) {
      if (answer.type === 'items') {
        const done = this.deliver(answer);
        if (done) {
          await done;
        }
        this.acknowledge(answer.channel);
      } else {
        this.finish(answer);
      }
    }
    this.isBusy = false;
    if (this.isWanted && this.open === null && this.timer === 0) {
      this.start(); // begin() was called meanwhile
    }
  }

  private deliver(answer: Items): Promise<void> | null {
    this.backoff.reset();
    this.greet();
    const done = safely(() => this.handler.onItems(answer.items));
    return done ? done.catch(complain) : null;
  }

  /** A sign that the stream flows: what was away is back. */
  private greet(): void {
    if (this.isAway) {
      this.isAway = false;
      safely(() => this.handler.onAway?.(null));
    }
    if (this.isFresh) {
      this.isFresh = false;
      safely(() => this.handler.onOpen?.());
    }
  }

  private acknowledge(number: number): void {
    if (number === this.open) {
      this.post.send({ type: 'ack', channel: number, count: 1 });
    }
  }

  private finish(answer: Ended | Failed): void {
    this.open = null;
    if (answer.type === 'ended') {
      this.greet();
      this.over();
      safely(() => this.handler.onEnded?.());
      return;
    }
    const error = new ApiError(answer.status, answer.error);
    if (!error.isAway) {
      this.fail(error);
      return;
    }
    this.timer = window.setTimeout(() => this.begin(), this.backoff.nextMs());
    this.away(error);
  }

  private over(): void {
    this.halt();
    this.post.over(this);
  }

  private readonly backoff = new Backoff();
  private queue: (Items | Ended | Failed)[] = [];
  private open: number | null = null;
  private timer = 0;
  private isWanted = false;
  private isBusy = false;
  private isFresh = false;
  private isAway = false;
}

/** An owner's fault must not stop the other channels, nor this one. */
function safely<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    complain(error);
    return undefined;
  }
}

function complain(error: unknown): void {
  console.error('GPU cluster: an update could not be shown:', error);
}
