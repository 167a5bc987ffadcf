import { ServerConnection } from '@jupyterlab/services';

import { ApiError } from '../errors';
import { StreamSocket } from '../socket';
import { IChannelHandler } from '../streams';
import { FakeServer, setVisibility } from './fakeServer';

/** An owner of a channel that counts lines and begins again behind the last one. */
class Reader implements IChannelHandler<number> {
  constructor(private readonly hidden: 'keep' | 'pause' = 'pause') {}

  readonly lines: number[] = [];
  readonly told: string[] = [];

  get whenHidden() {
    return this.hidden;
  }

  start() {
    return { path: 'events', query: { after: String(this.last) } };
  }

  onOpen() {
    this.told.push('open');
  }

  onItems(items: number[]): void | Promise<void> {
    this.lines.push(...items);
  }

  onEnded() {
    this.told.push('ended');
  }

  onFailed(error: ApiError) {
    this.told.push(`failed: ${error.sentence}`);
  }

  onAway(error: ApiError | null) {
    this.told.push(error ? `away: ${error.body.reason}` : 'back');
  }

  private get last(): number {
    return this.lines[this.lines.length - 1] ?? 0;
  }
}

/** Let everything happen that is due within this time. */
const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
const LOST = 'away: There is no connection to the Jupyter server.';

let server: FakeServer;
let socket: StreamSocket;
let warn: jest.SpyInstance;

beforeEach(() => {
  jest.useFakeTimers();
  jest.spyOn(Math, 'random').mockReturnValue(1); // no jitter: the whole wait
  warn = jest.spyOn(console, 'warn').mockImplementation();
  setVisibility('visible');
  server = new FakeServer();
  socket = new StreamSocket(server.settings);
});

afterEach(() => {
  socket.dispose();
  jest.restoreAllMocks();
  jest.useRealTimers();
});

describe('the connection', () => {
  it('is made below the base URL with an id of the page, and only when there is a channel', async () => {
    await pass(60_000);
    expect(server.sockets).toHaveLength(0);
    socket.open(new Reader());
    await pass(1);
    expect(server.sockets).toHaveLength(1);
    expect(server.socket.url).toMatch(
      /^ws:\/\/localhost\/user\/ada\/gpucluster\/api\/v1\/streams\/ws\?page=[0-9a-f-]{36}$/
    );
  });

  it('carries the token where Jupyter puts it in addresses', async () => {
    const settings = { ...server.settings, appendToken: true, token: 'a b' };
    const other = new StreamSocket(settings);
    other.open(new Reader());
    await pass(1);
    expect(server.socket.url).toMatch(/\?page=.*&token=a%20b$/);
    other.dispose();
  });

  it('keeps the id of the page over connections', async () => {
    socket.open(new Reader());
    await pass(1);
    server.socket.break();
    await pass(1_000);
    expect(server.sockets).toHaveLength(2);
    expect(server.sockets[1].url).toBe(server.sockets[0].url);
  });

  it('is closed a moment after the last channel, and not when another one is opened by then', async () => {
    const first = socket.open(new Reader());
    await pass(1);
    first.dispose();
    await pass(1_000);
    const second = socket.open(new Reader());
    await pass(60_000 / 4);
    expect(server.openSockets).toHaveLength(1);
    second.dispose();
    await pass(6_000);
    expect(server.openSockets).toHaveLength(0);
    expect(server.sockets).toHaveLength(1);
  });

  it('is tried again after waits that double up to 15 s', async () => {
    server.isUp = false;
    const startMs = Date.now();
    const triedMs: number[] = [];
    socket.open(new Reader());
    for (let seen = 0; seen < 8;) {
      if (server.sockets.length > seen) {
        seen = server.sockets.length;
        triedMs.push(Date.now() - startMs);
      }
      await pass(100);
    }
    const waits = triedMs.slice(1).map((ms, at) => ms - triedMs[at]);
    expect(waits.map(ms => Math.floor(ms / 500) * 0.5)).toEqual([
      0.5, 1, 2, 4, 8, 15, 15
    ]);
  });

  it('begins with short waits again once something good was heard', async () => {
    server.isUp = false;
    socket.open(new Reader());
    await pass(20_000);
    server.isUp = true;
    await pass(15_000);
    server.items([1]);
    const tries = server.sockets.length;
    server.socket.break();
    await pass(600);
    expect(server.sockets).toHaveLength(tries + 1);
  });

  it('does not count a greeting as good: a server that greets and breaks is not stormed', async () => {
    socket.open(new Reader());
    for (let seconds = 0; seconds < 60; seconds += 1) {
      await pass(1_000);
      server.socket.break();
    }
    expect(server.sockets.length).toBeLessThan(12);
  });

  it.each([
    ['the network comes back', () => window.dispatchEvent(new Event('online'))],
    ['the tab becomes visible', () => setVisibility('visible')],
    ['somebody asks for it', () => socket.retry()]
  ])('is tried at once when %s', async (_, happens) => {
    server.isUp = false;
    socket.open(new Reader());
    await pass(20_000);
    const tries = server.sockets.length;
    happens();
    expect(server.sockets).toHaveLength(tries + 1);
  });

  it('is begun anew when nothing was heard for 25 s, as after a sleep of the machine', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1, 2]);
    await pass(20_000);
    server.socket.say({ type: 'alive' });
    await pass(20_000);
    expect(server.sockets).toHaveLength(1);
    await pass(11_000);
    expect(server.sockets).toHaveLength(2);
    expect(server.openSockets).toEqual([server.socket]);
    expect(server.sent('open')[0].query).toEqual({ after: '2' });
  });

  it('is begun anew at once on waking up from a long sleep', async () => {
    socket.open(new Reader());
    await pass(1);
    jest.setSystemTime(Date.now() + 3_600_000);
    setVisibility('visible');
    await pass(501);
    expect(server.sockets).toHaveLength(2);
  });

  it('gives up a connection that never comes about', async () => {
    const reader = new Reader();
    socket.open(reader);
    server.socket.isClosed = true; // the server never says a word
    await pass(31_000);
    expect(server.sockets.length).toBeGreaterThan(1);
    expect(reader.told).toContain(LOST);
  });

  it('is begun anew when what comes is not of our server', async () => {
    socket.open(new Reader());
    await pass(1);
    server.socket.raw('<html>Bad gateway</html>');
    await pass(600);
    expect(server.sockets).toHaveLength(2);
    expect(server.sockets[0].isClosed).toBe(true);
  });

  it('writes one warning to the console for a long outage and none for a short one', async () => {
    socket.open(new Reader());
    await pass(1);
    server.items([1]);
    server.socket.break();
    await pass(1_000);
    server.items([2]);
    expect(warn).not.toHaveBeenCalled();
    server.isUp = false;
    server.socket.break();
    await pass(120_000);
    expect(warn).toHaveBeenCalledTimes(1);
  });

  it('of another protocol ends all channels with the advice to reload the page, for good', async () => {
    server.protocol = 2;
    const reader = new Reader();
    const late = new Reader();
    const claims: boolean[] = [];
    socket.open(reader);
    socket.claim('cell', 'log', ({ granted }) => claims.push(granted));
    await pass(1);
    socket.open(late);
    socket.retry();
    await pass(60_000);
    const sentence =
      'failed: The server runs version 1.0 of jupyter-gpucluster, and this page is of another one. Save your work and reload the page.';
    expect(reader.told).toEqual([sentence]);
    expect(late.told).toEqual([sentence]);
    expect(claims).toEqual([false]);
    expect(server.sockets).toHaveLength(1);
    expect(server.openSockets).toHaveLength(0);
  });
});

describe('a channel', () => {
  it('sends what its owner asks for and gives it the lines in their order', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    expect(server.sent('open')).toEqual([
      { type: 'open', channel: 1, path: 'events', query: { after: '0' } }
    ]);
    server.items([1, 2]);
    server.items([3]);
    expect(reader.lines).toEqual([1, 2, 3]);
    expect(reader.told).toEqual(['open']);
  });

  it('of a cell sends the cell query', async () => {
    const cell = { job_id: 'job1', drawing: { fills_cell: true } };
    socket.open({ start: () => ({ path: 'cell', cell }), onItems: () => {} });
    await pass(1);
    expect(server.sent('open')[0]).toMatchObject({ path: 'cell', cell });
  });

  it('goes on where it stood after a lost connection, and says meanwhile that it is away', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1, 2]);
    server.socket.break();
    expect(reader.told).toEqual(['open', LOST]);
    await pass(1_000);
    expect(server.sent('open')).toMatchObject([{ query: { after: '2' } }]);
    expect(reader.told).toEqual(['open', LOST]); // a connection alone is no sign of the cluster
    server.items([3]);
    expect(reader.lines).toEqual([1, 2, 3]);
    expect(reader.told).toEqual(['open', LOST, 'back', 'open']);
  });

  it('never uses a number twice, and passes over what still comes for an old one', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1], 1);
    server.socket.break();
    await pass(1_000);
    const opened = server.channel;
    expect(opened).toBeGreaterThan(1);
    server.items([99], 1);
    server.items([2], opened);
    expect(reader.lines).toEqual([1, 2]);
  });

  it('acknowledges a message when its owner is done with it, and gives it the next one only then', async () => {
    const done: (() => void)[] = [];
    const got: number[][] = [];
    socket.open<number>({
      start: () => ({ path: 'events' }),
      onItems: items => {
        got.push(items);
        return new Promise(resolve => done.push(resolve));
      }
    });
    await pass(1);
    server.items([1]);
    server.items([2]);
    await pass(1);
    expect(got).toEqual([[1]]);
    expect(server.sent('ack')).toEqual([]);
    done[0]();
    await pass(1);
    expect(got).toEqual([[1], [2]]);
    expect(server.sent('ack')).toEqual([{ type: 'ack', channel: 1, count: 1 }]);
  });

  it('whose owner is slow holds up no other', async () => {
    socket.open({
      start: () => ({ path: 'slow' }),
      onItems: () => new Promise(() => {})
    });
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1], 1);
    server.items([7], 2);
    expect(reader.lines).toEqual([7]);
    expect(server.sent('ack')).toEqual([{ type: 'ack', channel: 2, count: 1 }]);
  });

  it('begins anew only when its owner is done with what it had in hand', async () => {
    let finish: () => void = () => {};
    let position = 0;
    socket.open<number>({
      start: () => ({ path: 'events', query: { after: String(position) } }),
      onItems: async ([line]) => {
        await new Promise<void>(resolve => (finish = resolve));
        position = line;
      }
    });
    await pass(1);
    server.items([5]);
    server.items([6]); // not dealt with when the connection breaks: it comes again
    server.socket.break();
    await pass(2_000);
    expect(server.sent('open')).toEqual([]);
    finish();
    await pass(1);
    expect(server.sent('open')).toMatchObject([{ query: { after: '5' } }]);
    expect(server.sent('ack')).toEqual([]); // the message was of the old connection
  });

  it('is tried again on the same connection while the scheduler is away', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1]);
    server.failed(502, 'The scheduler does not answer.');
    expect(reader.told).toEqual([
      'open',
      'away: The scheduler does not answer.'
    ]);
    await pass(600);
    expect(server.sockets).toHaveLength(1);
    expect(server.sent('open')).toHaveLength(2);
    server.failed(503, 'It starts.');
    await pass(900);
    expect(server.sent('open')).toHaveLength(2); // the second wait is longer
    await pass(200);
    expect(server.sent('open')[2].query).toEqual({ after: '1' });
    server.items([2]);
    expect(reader.lines).toEqual([1, 2]);
    expect(reader.told.slice(-2)).toEqual(['back', 'open']);
  });

  it('is tried again at once when somebody asks for it', async () => {
    socket.open(new Reader());
    await pass(1);
    for (let tries = 0; tries < 6; tries += 1) {
      server.failed(502, 'away');
      await pass(15_000);
    }
    server.failed(502, 'away');
    const opened = server.sent('open').length;
    socket.retry();
    expect(server.sent('open')).toHaveLength(opened + 1);
  });

  it.each([404, 403, 400, 500])(
    'is over after an error that lasts (%s)',
    async status => {
      const reader = new Reader();
      socket.open(reader);
      await pass(1);
      server.failed(status, 'No such job.');
      await pass(2_000);
      expect(reader.told).toEqual(['failed: No such job.']);
      expect(server.sent('open')).toHaveLength(1);
      await pass(10_000);
      expect(server.openSockets).toHaveLength(0);
    }
  );

  it('is over when its stream has ended', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1]);
    server.ended();
    expect(reader.told).toEqual(['open', 'ended']);
    await pass(10_000);
    expect(server.openSockets).toHaveLength(0);
  });

  it('tells its end only after the lines before it were dealt with', async () => {
    const told: string[] = [];
    socket.open<number>({
      start: () => ({ path: 'events' }),
      onItems: async ([line]) => {
        await new Promise(resolve => setTimeout(resolve, 100));
        told.push(String(line));
      },
      onEnded: () => told.push('ended')
    });
    await pass(1);
    server.items([1]);
    server.items([2]);
    server.ended();
    await pass(1_000);
    expect(told).toEqual(['1', '2', 'ended']);
  });

  it('that is disposed is closed on the other side and gives nothing more', async () => {
    const reader = new Reader();
    const channel = socket.open(reader);
    await pass(1);
    channel.dispose();
    expect(server.sent('close')).toEqual([{ type: 'close', channel: 1 }]);
    server.items([1], 1);
    server.failed(502, 'late', 1);
    await pass(20_000);
    expect(reader.lines).toEqual([]);
    expect(reader.told).toEqual([]);
  });

  it('may be disposed by its owner in the middle of a message', async () => {
    const reader = new Reader();
    const channel = socket.open(reader);
    reader.onItems = items => {
      reader.lines.push(...items);
      channel.dispose();
    };
    await pass(1);
    server.items([1]);
    server.items([2]);
    expect(reader.lines).toEqual([1]);
  });

  it('goes on when its owner has a fault, which is told', async () => {
    const complain = jest.spyOn(console, 'error').mockImplementation();
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    reader.onItems = () => {
      throw new Error('a fault');
    };
    server.items([1]);
    expect(complain).toHaveBeenCalledTimes(1);
    reader.onItems = async () => {
      throw new Error('another');
    };
    server.items([2]);
    await pass(1);
    expect(complain).toHaveBeenCalledTimes(2);
    expect(server.sent('ack')).toHaveLength(2);
  });
});

describe('a hidden tab', () => {
  it('lets go of everything after 30 s and goes on when it is looked at', async () => {
    const reader = new Reader();
    socket.open(reader);
    await pass(1);
    server.items([1]);
    setVisibility('hidden');
    await pass(15_000);
    server.socket.say({ type: 'alive' });
    expect(server.openSockets).toHaveLength(1);
    await pass(16_000);
    expect(server.openSockets).toHaveLength(0);
    await pass(600_000);
    expect(server.sockets).toHaveLength(1);
    setVisibility('visible');
    await pass(1);
    expect(server.sent('open')).toMatchObject([{ query: { after: '1' } }]);
    server.items([2]);
    expect(reader.lines).toEqual([1, 2]);
    expect(reader.told).toEqual(['open', 'open']); // it was never told to be away
  });

  it('that is visible again within 30 s has lost nothing', async () => {
    socket.open(new Reader());
    await pass(1);
    setVisibility('hidden');
    await pass(20_000);
    setVisibility('visible');
    await pass(1);
    server.socket.say({ type: 'alive' });
    await pass(20_000);
    expect(server.sockets).toHaveLength(1);
    expect(server.sent('close')).toEqual([]);
  });

  it('goes on with the channels that draw cells, and with those alone', async () => {
    const cell = new Reader('keep');
    const panel = new Reader();
    socket.open(cell);
    socket.open(panel);
    await pass(1);
    setVisibility('hidden');
    for (let seconds = 0; seconds < 60; seconds += 10) {
      server.socket.say({ type: 'alive' });
      await pass(10_000);
    }
    expect(server.openSockets).toHaveLength(1);
    expect(server.sent('close')).toEqual([{ type: 'close', channel: 2 }]);
    server.items([1], 1);
    expect(cell.lines).toEqual([1]);
    server.socket.break();
    await pass(1_000);
    expect(server.sent('open')).toHaveLength(1);
    expect(panel.told).toEqual([]);
    setVisibility('visible');
    expect(server.sent('open')).toHaveLength(2);
  });

  it('holds its claims', async () => {
    socket.claim('cell', 'kernel', () => {});
    await pass(1);
    setVisibility('hidden');
    for (let seconds = 0; seconds < 60; seconds += 10) {
      server.socket.say({ type: 'alive' });
      await pass(10_000);
    }
    expect(server.openSockets).toHaveLength(1);
  });
});

describe('a WebSocket that never comes about', () => {
  /** What the server answers to a request, meanwhile. */
  const answering = (status: number, body = '') => {
    const answer = { status, ok: status < 400, text: async () => body };
    return jest
      .spyOn(ServerConnection, 'makeRequest')
      .mockResolvedValue(answer as Response);
  };

  beforeEach(() => {
    server.isUp = false;
  });

  it.each([
    [403, '', 'The Jupyter server wants you to log in.'],
    [404, '', 'The Jupyter server knows no GPU cluster.'],
    [
      200,
      '{}',
      'The Jupyter server answers, but its WebSocket cannot be reached.'
    ]
  ])(
    'is told of with what a request brings (%i)',
    async (status, body, why) => {
      const asked = answering(status, body);
      const reader = new Reader();
      socket.open(reader);
      await pass(100);
      expect(asked).not.toHaveBeenCalled(); // a server that restarts is no riddle
      await pass(1000);
      expect(asked.mock.calls[0][0]).toContain('gpucluster/api/v1/hello');
      expect(reader.told[reader.told.length - 1]).toBe(`away: ${why}`);
    }
  );

  it('is no riddle when it is there by the time of the answer', async () => {
    let answer: (response: Response) => void = () => undefined;
    jest.spyOn(ServerConnection, 'makeRequest').mockReturnValue(
      new Promise(done => {
        answer = done;
      })
    );
    const reader = new Reader();
    socket.open(reader);
    await pass(600);
    server.isUp = true;
    await pass(2000);
    expect(server.sent('open')).toHaveLength(1);
    answer({ status: 404, ok: false, text: async () => '' } as Response);
    await pass(1);
    expect(reader.told[reader.told.length - 1]).toBe(LOST);
  });
});

describe('a claim', () => {
  it.each([
    ['too long', 'k'.repeat(2001)],
    ['no text', 'half of a pair \ud83d']
  ])(
    'to a cell whose id is %s is never granted, and not sent: it would cost the connection',
    async (_, key) => {
      const told: unknown[] = [];
      const claim = socket.claim(key, 'log', standing => told.push(standing));
      socket.claim('cell \ud83d\ude00', 'log', () => {});
      await pass(1);
      expect(server.sent('claim').map(sent => sent.key)).toEqual([
        'cell \ud83d\ude00'
      ]);
      expect(told).toEqual([{ granted: false, holder: null }]);
      claim.dispose();
      expect(server.sent('release')).toEqual([]);
    }
  );

  it('is put to the server and tells how it stands', async () => {
    const told: unknown[] = [];
    const claim = socket.claim('cell', 'log', standing => told.push(standing));
    expect(claim.granted).toBe(false);
    await pass(1);
    expect(server.sent('claim')).toEqual([
      { type: 'claim', key: 'cell', role: 'log' }
    ]);
    server.socket.say({
      type: 'claimed',
      key: 'cell',
      granted: false,
      holder: 'kernel'
    });
    server.socket.say({ type: 'claimed', key: 'cell', granted: true });
    expect(claim.granted).toBe(true);
    expect(told).toEqual([
      { granted: false, holder: null },
      { granted: false, holder: 'kernel' },
      { granted: true, holder: null }
    ]);
  });

  it('is not granted without a connection, and is made again with the next one', async () => {
    const told: boolean[] = [];
    const claim = socket.claim('cell', 'log', ({ granted }) =>
      told.push(granted)
    );
    await pass(1);
    server.socket.say({ type: 'claimed', key: 'cell', granted: true });
    server.socket.break();
    expect(claim.granted).toBe(false);
    await pass(1_000);
    expect(server.sent('claim')).toHaveLength(1);
    server.socket.say({ type: 'claimed', key: 'cell', granted: true });
    expect(told).toEqual([false, true, false, true]);
  });

  it('that is given up is released, tells nothing more, and lets the connection go', async () => {
    const told: boolean[] = [];
    const claim = socket.claim('cell', 'log', ({ granted }) =>
      told.push(granted)
    );
    await pass(1);
    claim.dispose();
    expect(server.sent('release')).toEqual([{ type: 'release', key: 'cell' }]);
    server.socket.say({ type: 'claimed', key: 'cell', granted: true });
    expect(told).toEqual([false]);
    await pass(10_000);
    expect(server.openSockets).toHaveLength(0);
  });

  it("of a kernel in the same page goes before the page's own, which waits until that is over", async () => {
    const page: unknown[] = [];
    const kernel: unknown[] = [];
    socket.claim('cell', 'log', standing => page.push(standing));
    await pass(1);
    const say = (granted: boolean) =>
      server.socket.say({ type: 'claimed', key: 'cell', granted });
    say(true);
    const claim = socket.claim('cell', 'kernel', standing =>
      kernel.push(standing)
    );
    expect(server.socket.sent.map(({ type }) => type)).toEqual([
      'claim',
      'claim'
    ]);
    say(true);
    expect(kernel).toEqual([
      { granted: false, holder: null },
      { granted: true, holder: null }
    ]);
    expect(page[page.length - 1]).toEqual({ granted: false, holder: 'kernel' });
    claim.dispose();
    say(true);
    expect(page[page.length - 1]).toEqual({ granted: true, holder: null });
    expect(server.sent('claim').map(({ role }) => role)).toEqual([
      'log',
      'kernel',
      'log'
    ]);
  });

  it('of a second view of the same cell waits for the first', async () => {
    const second: boolean[] = [];
    const first = socket.claim('cell', 'log', () => {});
    await pass(1);
    server.socket.say({ type: 'claimed', key: 'cell', granted: true });
    socket.claim('cell', 'log', ({ granted }) => second.push(granted));
    expect(server.sent('claim')).toHaveLength(1);
    expect(second).toEqual([false]);
    first.dispose();
    server.socket.say({ type: 'claimed', key: 'cell', granted: true });
    expect(second).toEqual([false, true]);
  });
});

it('a disposed socket is quiet for good', async () => {
  const reader = new Reader();
  socket.open(reader);
  await pass(1);
  socket.dispose();
  window.dispatchEvent(new Event('online'));
  setVisibility('hidden');
  setVisibility('visible');
  await pass(120_000);
  expect(server.sockets).toHaveLength(1);
  expect(server.openSockets).toHaveLength(0);
  expect(jest.getTimerCount()).toBe(0);
});
