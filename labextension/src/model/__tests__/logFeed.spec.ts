import { IDisposable } from '@lumino/disposable';

import { ApiError } from '../../api/errors';
import { StreamItem } from '../../api/schemas';
import {
  IChannelHandler,
  IChannelStart,
  IClaim,
  IStreams
} from '../../api/streams';
import { ILogSink, LogFeed, TAIL_BYTES, TAIL_RECORDS } from '../logFeed';
import { LogText } from '../logText';
import { LogScene, plain, TIME_US, trans } from './logRecords';

const TAIL = { tail: String(TAIL_RECORDS), tail_bytes: String(TAIL_BYTES) };
const away = new ApiError(502, { code: 'unavailable', reason: 'Away.' });
const forbidden = new ApiError(403, {
  code: 'forbidden',
  reason: 'Not yours.'
});

/** A scheduler with one log: a channel is cut and connected by the test, and asks anew where it stands, as ours does. */
class FakeStreams implements IStreams {
  readonly isDisposed = false;
  handler: IChannelHandler<StreamItem> | null = null;
  readonly starts: IChannelStart[] = [];
  opened = 0;

  open<T>(handler: IChannelHandler<T>): IDisposable {
    this.opened += 1;
    const mine = handler as unknown as IChannelHandler<StreamItem>;
    this.handler = mine;
    this.connect();
    return {
      isDisposed: false,
      dispose: () => {
        if (this.handler === mine) {
          this.handler = null;
        }
      }
    };
  }

  /** The connection came back. */
  connect(): IChannelStart {
    const start = this.handler!.start();
    this.starts.push(start);
    return start;
  }

  get asked(): Record<string, string> {
    return this.starts[this.starts.length - 1].query ?? {};
  }

  async send(items: StreamItem[]): Promise<void> {
    await this.handler?.onItems(items);
  }

  /** What the scheduler sends to somebody who asked as was asked last. */
  due(scene: LogScene): StreamItem[] {
    const { attempt, offset } = this.asked;
    return attempt
      ? scene.from(Number(attempt), Number(offset))
      : [...scene.all];
  }

  claim(): IClaim {
    throw new Error('no cell here');
  }
  retry(): void {}
  dispose(): void {}
}

class Sink implements ILogSink {
  text = '';
  clears = 0;
  /** When set, nothing is shown before `release()`. */
  isSlow = false;

  write(text: string): Promise<void> {
    this.text += plain(text);
    return this.isSlow
      ? new Promise(done => this.waiting.push(done))
      : Promise.resolve();
  }

  clear(): void {
    this.text = '';
    this.clears += 1;
    this.release();
  }

  release(): void {
    this.waiting.splice(0).forEach(done => done());
  }

  readonly waiting: (() => void)[] = [];
}

const settled = (): Promise<void> =>
  new Promise(done => window.setTimeout(done, 0));

let streams: FakeStreams;
let sink: Sink;
let scene: LogScene;
let feed: LogFeed;
let untilUs: number;
let isOver: boolean;
let following: boolean;

beforeEach(() => {
  streams = new FakeStreams();
  sink = new Sink();
  scene = new LogScene();
  untilUs = TIME_US;
  isOver = false;
  following = true;
  feed = new LogFeed(
    streams,
    { job: 'abc', rank: 1, attempt: null },
    {
      sink,
      text: () => new LogText(trans),
      writing: () => ({ isOver, untilUs }),
      isFollowing: () => following
    }
  );
});

test('nothing is asked for until somebody looks; then the last records of the rank', () => {
  expect(streams.starts).toEqual([]);
  feed.resume();
  expect(streams.starts).toEqual([
    { path: 'jobs/abc/log', query: { rank: '1', follow: '1', ...TAIL } }
  ]);
  expect(feed.state).toBe('loading');
});

test('cut off at any record it goes on behind the last one: no gap, no repetition', async () => {
  for (let number = 0; number < 5; number++) {
    scene.add('stdout', `${number} `);
  }
  scene.begin();
  for (let number = 5; number < 10; number++) {
    scene.add('stdout', `${number} `);
  }
  feed.resume();
  const count = scene.all.length;
  for (let cut = 0; cut <= count + 1; cut++) {
    const due = streams.due(scene);
    await streams.send(due.slice(0, cut % 3));
    streams.connect(); // the connection, or the scheduler, is another one
  }
  await streams.send(streams.due(scene));
  const wanted = new LogText(trans).take(scene.all);
  expect(sink.text).toBe(plain(wanted));
  expect(streams.asked).toEqual({
    rank: '1',
    follow: '1',
    attempt: '2',
    offset: String(5 * (28 + 2))
  });
});

test('records that come twice are shown once', async () => {
  scene.add('stdout', 'a');
  scene.add('stdout', 'b');
  feed.resume();
  await streams.send(scene.all);
  await streams.send(scene.all);
  expect(sink.text).toBe('ab');
});

test('more is taken when what came is shown, in the order in which it came', async () => {
  sink.isSlow = true;
  feed.resume();
  let taken = 0;
  const first = streams.send([scene.add('stdout', 'a')]).then(() => taken++);
  const second = streams.send([scene.add('stdout', 'b')]).then(() => taken++);
  await settled();
  expect([sink.text, taken]).toEqual(['a', 0]);
  sink.release();
  await first;
  await settled();
  expect([sink.text, taken]).toEqual(['ab', 1]);
  sink.release();
  await second;
});

test('while nobody looks nothing is asked for; then it goes on where it stood', async () => {
  feed.resume();
  await streams.send([scene.add('stdout', 'a')]);
  feed.pause();
  expect([feed.state, streams.handler]).toEqual(['paused', null]);
  feed.resume();
  expect(streams.asked).toMatchObject({ attempt: '1', offset: '29' });
  expect(feed.state).toBe('live');
});

test('what was not shown before somebody looked away is asked for again', async () => {
  sink.isSlow = true;
  feed.resume();
  const first = streams.send([scene.add('stdout', 'a')]);
  const second = streams.send([scene.add('stdout', 'b')]);
  await settled();
  feed.pause();
  sink.release();
  await Promise.all([first, second]);
  expect(sink.text).toBe('a');
  feed.resume();
  expect(streams.asked).toMatchObject({ offset: '29' });
});

test('away, it says so and keeps what it has; back, it does not', async () => {
  feed.resume();
  await streams.send([scene.add('stdout', 'a')]);
  streams.handler!.onAway!(away);
  expect([feed.state, feed.error, sink.text]).toEqual(['live', away, 'a']);
  streams.handler!.onAway!(null);
  expect(feed.error).toBeNull();
});

test('the end is the end, after all text was shown: looking again asks for nothing', async () => {
  feed.resume();
  void streams.send([scene.add('stdout', 'a')]);
  streams.handler!.onEnded!();
  await settled();
  expect([feed.state, sink.text]).toEqual(['ended', 'a']);
  feed.resume();
  expect(streams.opened).toBe(1);
});

test('it knows when it has all there is: by the time of what comes, by silence, by the end', async () => {
  feed.resume();
  untilUs = TIME_US + 3e6;
  await streams.send([scene.add('stdout', 'a')]);
  expect(feed.isUpToDate).toBe(false);
  await streams.send([{ type: 'alive' }]);
  expect(feed.isUpToDate).toBe(true);
  await streams.send([scene.add('stdout', 'b')]);
  expect(feed.isUpToDate).toBe(false);
  untilUs = TIME_US + 1e6;
  await streams.send([scene.add('stdout', 'c')]);
  expect(feed.isUpToDate).toBe(true);
  isOver = true; // the job's end was a second later: more may have been written in it
  await streams.send([scene.add('stdout', 'd')]);
  expect(feed.isUpToDate).toBe(false);
  streams.handler!.onEnded!();
  await settled();
  expect(feed.isUpToDate).toBe(true);
});

test('a log that may not be read fails with the sentence of the API', async () => {
  feed.resume();
  streams.handler!.onFailed!(forbidden);
  await settled();
  expect(feed.state).toBe('failed');
  expect(feed.error?.sentence).toBe('Not yours.');
});

test('from the beginning, or of another rank or attempt, it is shown anew', async () => {
  feed.resume();
  await streams.send([scene.add('stdout', 'a')]);
  feed.restart('start');
  expect([streams.asked, sink.text]).toEqual([{ rank: '1', follow: '1' }, '']);
  await streams.send(scene.all);
  expect(sink.text).toBe('a');
  feed.restart('end', { rank: 3, attempt: 2 });
  expect(streams.asked).toEqual({
    rank: '3',
    follow: '1',
    only_attempt: '2',
    ...TAIL
  });
  expect(feed.text.cursor).toBeNull();
});

test('what still came of the log before is not shown in the new one', async () => {
  sink.isSlow = true;
  feed.resume();
  const first = streams.send([scene.add('stdout', 'a')]);
  const second = streams.send([scene.add('stdout', 'b')]);
  await settled();
  feed.restart('end', { rank: 0 });
  await Promise.all([first, second]);
  expect(sink.text).toBe('');
});

describe('a job that writes faster than can be shown', () => {
  const flood = async (megabytes: number) => {
    const line = 'x'.repeat(1 << 20);
    for (let number = 0; number < megabytes; number++) {
      await streams.send([scene.add('stdout', line)]);
    }
  };

  beforeEach(async () => {
    feed.resume();
    await streams.send([scene.add('stdout', 'first\n')]);
    untilUs = TIME_US + 6e6;
  });

  test('is gone on with at its end, and how much was left out is told', async () => {
    await flood(4);
    expect(streams.opened).toBe(2);
    expect(streams.asked).toEqual({ rank: '1', follow: '1', ...TAIL });
    for (let number = 0; number < 7; number++) {
      scene.add('stdout', 'not shown\n');
    }
    await streams.send([scene.add('stdout', 'last\n')]);
    const shown = sink.text.replace(/x+/g, '');
    expect(shown).toBe(
      'first\n\n— 7 records left out: they came faster than this page shows them —\nlast\n'
    );
    streams.connect();
    expect(streams.asked).not.toHaveProperty('tail');
  });

  test('is shown without a gap to who reads above', async () => {
    following = false;
    await flood(8);
    expect(streams.opened).toBe(1);
  });

  test('is shown without a gap while it is not long behind', async () => {
    untilUs = TIME_US + 1e6;
    await flood(8);
    expect(streams.opened).toBe(1);
  });
});
