/** A Jupyter server for tests: the WebSockets that a page makes, what it sent on them, and what the server says. */
import { ServerConnection } from '@jupyterlab/services';

import { Request } from '../connection';

export class FakeWebSocket {
  constructor(
    readonly url: string,
    private readonly server: FakeServer
  ) {
    server.sockets.push(this);
    if (server.isUp) {
      window.setTimeout(() => this.greet(), 0);
    } else {
      window.setTimeout(() => this.break(), 0);
    }
  }

  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: unknown) => void) | null = null;
  onerror: ((event: unknown) => void) | null = null;
  isClosed = false;
  readonly sent: Request[] = [];

  send(text: string): void {
    if (!this.isClosed) {
      this.sent.push(JSON.parse(text));
    }
  }

  /** The page closes it. */
  close(): void {
    this.isClosed = true;
  }

  /** It is lost, on the way or by the server's end. */
  break(): void {
    if (!this.isClosed) {
      this.isClosed = true;
      this.onclose?.({ code: 1006 });
    }
  }

  say(answer: unknown): void {
    this.raw(JSON.stringify(answer));
  }

  raw(data: string): void {
    if (!this.isClosed) {
      this.onmessage?.({ data });
    }
  }

  private greet(): void {
    this.say({
      type: 'hello',
      page_protocol: this.server.protocol,
      version: '1.0'
    });
  }
}

export class FakeServer {
  isUp = true;
  protocol = 1;
  readonly sockets: FakeWebSocket[] = [];

  get settings(): ServerConnection.ISettings {
    const connect = (url: string) => new FakeWebSocket(url, this);
    const Socket = function (url: string) {
      return connect(url);
    };
    return {
      baseUrl: 'http://localhost/user/ada/',
      wsUrl: 'ws://localhost/user/ada/',
      appendToken: false,
      token: '',
      WebSocket: Socket as unknown as typeof WebSocket
    } as ServerConnection.ISettings;
  }

  /** The newest connection. */
  get socket(): FakeWebSocket {
    return this.sockets[this.sockets.length - 1];
  }

  /** Connections that neither side has closed. */
  get openSockets(): FakeWebSocket[] {
    return this.sockets.filter(socket => !socket.isClosed);
  }

  /** What the page sent on the newest connection, of one type. */
  sent<T extends Request['type']>(type: T): Extract<Request, { type: T }>[] {
    return this.socket.sent.filter(
      (request): request is Extract<Request, { type: T }> =>
        request.type === type
    );
  }

  /** The number of the newest channel on the newest connection. */
  get channel(): number {
    const opened = this.sent('open');
    return opened[opened.length - 1].channel;
  }

  /** Lines of the newest channel, or another one, in one message. */
  items(items: unknown[], channel = this.channel): void {
    this.socket.say({ type: 'items', channel, items });
  }

  failed(status: number, reason: string, channel = this.channel): void {
    const error = { code: 'x', reason };
    this.socket.say({ type: 'failed', channel, status, error });
  }

  ended(channel = this.channel): void {
    this.socket.say({ type: 'ended', channel });
  }
}

/** What the browser says of the tab. */
export function setVisibility(state: 'visible' | 'hidden'): void {
  Object.defineProperty(document, 'visibilityState', {
    configurable: true,
    get: () => state
  });
  document.dispatchEvent(new Event('visibilitychange'));
}
