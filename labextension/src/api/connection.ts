/** One WebSocket to the Jupyter server that comes back by itself, with back-off, and that finds out when it is dead. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { UUID } from '@lumino/coreutils';

import { Backoff } from './backoff';
import { ApiError } from './errors';
import { request } from './rest';
import {
  Ack,
  Alive,
  Claim,
  Claimed,
  Close,
  Ended,
  Failed,
  Hello,
  Items,
  Open,
  Release
} from './schemas';

export type Request = Open | Close | Ack | Claim | Release;
export type Answer = Items | Ended | Failed | Claimed;

/** Of `messages.py`; another one on the other side means that this page is older or newer than the server. */
const PAGE_PROTOCOL = 1;
/** The server is never silent for more than 10 s. */
const SILENT_MS = 25_000;
const LOOK_MS = 5_000;

/** What happens on a connection; each in its order. */
export interface IConnectionEvents {
  onConnected(): void;
  onAnswer(answer: Answer): void;
  /** The connection is lost, or did not come about. It is tried again by itself. */
  onLost(error: ApiError): void;
  /** It makes no sense to try again. */
  onRefused(error: ApiError): void;
}

export class Connection {
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly events: IConnectionEvents,
    private readonly trans: TranslationBundle
  ) {}

  /** Connected and greeted: requests can be sent. */
  get isConnected(): boolean {
    return this.connected;
  }

  /** Connect, if that is not so or under way already. */
  open(): void {
    if (this.wanted || this.refused) {
      return;
    }
    this.wanted = true;
    this.connect();
  }

  close(): void {
    this.wanted = false;
    this.drop();
    this.backoff.reset();
  }

  send(request: Request): void {
    this.socket?.send(JSON.stringify(request));
  }

  /** Do not wait for the back-off. A connection of which nothing was heard for long is begun anew at once. */
  retry(): void {
    if (this.timer !== 0) {
      this.backoff.reset();
      this.connect();
    } else {
      this.look();
    }
  }

  private connect(): void {
    this.drop();
    const socket = new this.settings.WebSocket(this.url());
    this.socket = socket;
    this.heardMs = Date.now();
    socket.onmessage = event => this.receive(socket, event.data);
    socket.onclose = () => this.lose(socket);
    socket.onerror = () => undefined; // a close follows
    this.watchdog = window.setInterval(() => this.look(), LOOK_MS);
  }

  private url(): string {
    const { wsUrl, appendToken, token } = this.settings;
    const url = URLExt.join(wsUrl, 'gpucluster/api/v1/streams/ws');
    const query: Record<string, string> = { page: this.page };
    if (appendToken && token) {
      query.token = token;
    }
    return url + URLExt.objectToQueryString(query);
  }

  private receive(socket: WebSocket, data: unknown): void {
    if (socket !== this.socket) {
      return;
    }
    this.heardMs = Date.now();
    const answer = parsed(data);
    if (answer === null) {
      this.lose(socket);
    } else if (answer.type === 'hello') {
      this.greet(answer);
    } else {
      this.backoff.reset();
      this.warned = false;
      if (answer.type !== 'alive') {
        this.events.onAnswer(answer);
      }
    }
  }

  private greet(hello: Hello): void {
    if (hello.page_protocol === PAGE_PROTOCOL) {
      this.connected = true;
      this.events.onConnected();
      return;
    }
    this.refused = true;
    this.close();
    this.events.onRefused(
      new ApiError(426, {
        code: 'page_protocol',
        reason: this.trans.__(
          'The server runs version %1 of jupyter-gpucluster, and this page is of another one.',
          hello.version
        ),
        hint: this.trans.__('Save your work and reload the page.')
      })
    );
  }

  private lose(socket: WebSocket): void {
    if (socket !== this.socket) {
      return;
    }
    const isRefused = !this.connected;
    this.drop();
    const waitMs = this.backoff.nextMs();
    this.timer = window.setTimeout(() => this.connect(), waitMs);
    if (this.backoff.failures > 1 && !this.warned) {
      this.warned = true;
      console.warn(
        'GPU cluster: no connection to the Jupyter server; it is tried again.'
      );
    }
    this.events.onLost(
      new ApiError(0, {
        code: 'no_connection',
        reason: this.trans.__('There is no connection to the Jupyter server.'),
        hint: null
      })
    );
    if (isRefused && this.backoff.failures > 1) {
      void this.explain();
    }
  }

  /** A browser does not tell why a WebSocket did not come about. A request does: logged out, no extension, a proxy. */
  private async explain(): Promise<void> {
    const { settings, trans } = this;
    const error = await request(settings, 'hello', {}, trans).then(
      () => this.noWebSocket(),
      (reason: ApiError) => reason
    );
    const isWaiting = this.timer !== 0; // else it is being tried again, or not wanted any more
    if (isWaiting && error.status !== 0) {
      this.events.onLost(error);
    }
  }

  private noWebSocket(): ApiError {
    return new ApiError(502, {
      code: 'no_websocket',
      reason: this.trans.__(
        'The Jupyter server answers, but its WebSocket cannot be reached.'
      ),
      // A server that was started anew may take this page's token, which requests carry, and not its cookie.
      hint: this.trans.__(
        'Reload the page to log in again. If that does not help, a proxy before it may not let WebSockets through.'
      )
    });
  }

  /** Begin anew when nothing was heard for too long: the other side is gone without a word, or this machine slept. */
  private look(): void {
    const nowMs = Date.now();
    this.heardMs = Math.min(this.heardMs, nowMs);
    if (this.socket && nowMs - this.heardMs > SILENT_MS) {
      this.lose(this.socket);
    }
  }

  private drop(): void {
    window.clearTimeout(this.timer);
    window.clearInterval(this.watchdog);
    this.timer = 0;
    this.connected = false;
    const socket = this.socket;
    this.socket = null;
    if (socket) {
      socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  private readonly backoff = new Backoff();
  private readonly page = UUID.uuid4();
  private socket: WebSocket | null = null;
  private wanted = false;
  private connected = false;
  private refused = false;
  private warned = false;
  private heardMs = 0;
  private timer = 0;
  private watchdog = 0;
}

function parsed(data: unknown): Hello | Alive | Answer | null {
  try {
    return JSON.parse(String(data));
  } catch {
    return null; // not our server
  }
}
