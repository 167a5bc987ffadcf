import { HistoryView } from '../../api/schemas';
import { attemptEnding, LogText, STDERR_COLOUR } from '../logText';
import { localTime } from '../words';
import { LogScene, plain, TIME_US, trans } from './logRecords';

const STDERR = `\x1b[38;5;${STDERR_COLOUR}m`;

function clock(plusUs = 0): string {
  return localTime(TIME_US + plusUs, Date.now() * 1000);
}

let scene: LogScene;
let text: LogText;

beforeEach(() => {
  scene = new LogScene();
  text = new LogText(trans);
});

test('standard output comes as it was written', () => {
  const written = 'a\r50%\r100%\nb\bc \x1b[31mred\x1b[0m äöü 你好\n';
  scene.add('stdout', written);
  expect(text.take(scene.all)).toBe(written);
});

test('a character that is cut by two records is whole', () => {
  const bytes = [...new TextEncoder().encode('naïve 🚀!')];
  for (let at = 0; at <= bytes.length; at++) {
    const cut = new LogText(trans);
    const parts = new LogScene();
    parts.add('stdout', bytes.slice(0, at));
    parts.add('stdout', bytes.slice(at));
    const shown = parts.all.map(item => cut.take([item])).join('');
    expect(shown).toBe('naïve 🚀!');
  }
});

test('what is no text, and what is not whole at the end, is shown as replaced', () => {
  scene.add('stdout', [0x61, 0xff, 0x62]);
  scene.add('stdout', [0xe4, 0xbd]);
  expect(text.take([...scene.all, { type: 'end' }])).toBe('a\ufffdb\ufffd');
});

test('characters of two streams that come by turns do not mix', () => {
  scene.add('stdout', [0xc3]);
  scene.add('stderr', [0xc3]);
  scene.add('stdout', [0xa4, 0x0a]);
  scene.add('stderr', [0xb6, 0x0a]);
  expect(plain(text.take(scene.all))).toBe('ä\nö\n');
});

test('standard error has a colour of its own, and standard output goes on in its', () => {
  scene.add('stdout', '\x1b[32mgreen ');
  scene.add('stderr', 'oops ');
  scene.add('stdout', 'still green\x1b[0m plain');
  expect(text.take(scene.all)).toBe(
    `\x1b[32mgreen \x1b[0m${STDERR}oops \x1b[0m\x1b[32mstill green\x1b[0m plain`
  );
});

test('a colour that standard error brings itself stands before ours, until it is reset', () => {
  scene.add('stderr', '\x1b[31mred\x1b[0m back\x1b[33mx\x1b[39my');
  expect(text.take(scene.all)).toBe(
    `\x1b[0m${STDERR}\x1b[31mred\x1b[0m${STDERR} back\x1b[33mx\x1b[39m${STDERR}y`
  );
});

test('a sequence that is cut by two records is not torn by the other stream', () => {
  scene.add('stdout', 'a\x1b[3');
  scene.add('stderr', 'e');
  scene.add('stdout', '1mred');
  expect(text.take(scene.all)).toBe(`a\x1b[0m${STDERR}e\x1b[0m\x1b[31mred`);
});

test('displays are told by their plain text, in lines of their own', () => {
  scene.add('stdout', 'no newline');
  scene.add('display', {
    data: { 'text/plain': '<Figure>', 'image/png': '…' },
    metadata: {}
  });
  scene.add('display', { data: { 'text/html': '<b>' }, metadata: {} });
  scene.add('update', { data: { 'text/plain': 'later' }, metadata: {} });
  scene.add('stdout', 'on\n');
  expect(plain(text.take(scene.all))).toBe('no newline\n<Figure>\non\n');
});

test('for a file there are no colours but those of the job', () => {
  const file = new LogText(trans, undefined, false);
  scene.add('stdout', 'a\x1b[31mb');
  scene.add('stderr', 'c\x1b[0m');
  scene.add('display', { data: { 'text/plain': '<Figure>' } });
  scene.add('stdout', 'd\n');
  scene.add('status', { event: 'suspended' });
  expect(file.take(scene.all)).toBe(
    `a\x1b[31mbc\x1b[0m\n<Figure>\nd\n— suspended · ${clock(4)} —\n`
  );
});

test('a line that ends with colours is a whole line', () => {
  scene.add('stdout', '\x1b[31mred\n\x1b[0m');
  scene.add('status', { event: 'suspended' });
  expect(plain(text.take(scene.all))).toBe(
    `red\n— suspended · ${clock(1)} —\n`
  );
});

test('an error is told by its traceback, or by its name', () => {
  scene.add('error', {
    ename: 'ValueError',
    evalue: 'x',
    traceback: ['\x1b[31mValueError\x1b[0m', 'x']
  });
  scene.add('error', { ename: 'KeyError', evalue: "'k'", traceback: [] });
  expect(plain(text.take(scene.all))).toBe("ValueError\nx\nKeyError: 'k'\n");
});

test('what the supervisor says is told with its time: a notice to stop by its cause', () => {
  scene.add('status', { event: 'up', limit_means: {} });
  scene.add('status', { event: 'notice', cause: 'evict' });
  scene.add('status', { event: 'notice', text: 'something\x1b]0;else' });
  scene.add('status', { event: 'truncated', what: 'output' });
  expect(plain(text.take(scene.all)).split('\n')).toEqual([
    `— told to stop: evicted · ${clock(1)} —`,
    `— something ]0;else · ${clock(2)} —`,
    `— the job wrote more than its log takes; what came after this was dropped · ${clock(3)} —`,
    ''
  ]);
});

test('records of a later version, and what a task wrote that is no record, are left out', () => {
  scene.add('hologram', 'x');
  scene.add('error', 'no JSON');
  scene.add('display', '[1]');
  scene.add('status', 'null');
  scene.add('stdout', 'fine');
  expect(plain(text.take(scene.all))).toBe('Error: \nfine');
});

test('a new attempt is a line with its node, its time and what became of the one before', () => {
  const told = new LogText(trans, number => `attempt ${number} failed`);
  scene.add('stdout', 'one');
  scene.begin(['node-1']);
  const seamAlone = told.take(scene.all);
  expect(plain(seamAlone)).toBe('one'); // it has written nothing: when it began is not known
  const after = told.take([scene.add('stdout', 'two\n')]);
  expect(plain(after)).toBe(
    `\n— attempt 2 on node-1 (attempt 1 failed) · ${clock()} —\ntwo\n`
  );
});

test('an attempt that writes nothing is told all the same', () => {
  scene.begin();
  scene.begin();
  scene.all.push({ type: 'end' });
  expect(plain(text.take(scene.all))).toBe('— attempt 2 —\n— attempt 3 —\n');
});

test('a log that was removed is told in its place', () => {
  scene.begin();
  const reason = 'the retention of 30 days';
  scene.all.push({ type: 'gone', attempt: 2, time_us: TIME_US, reason });
  expect(plain(text.take(scene.all))).toMatch(
    /^— attempt 2 —\n— the log of attempt 2 was removed on 2025-10-\d+ by the retention of 30 days —\n$/
  );
});

test('the cursor stands behind the last record; what was seen is not taken again', () => {
  scene.add('stdout', 'one ');
  scene.add('stdout', 'two ');
  text.take(scene.all);
  expect(text.cursor).toEqual({ attempt: 1, offset: 2 * (28 + 4) });
  scene.add('stderr', 'ä');
  expect(plain(text.take(scene.all))).toBe('ä');
  expect(text.cursor).toEqual({ attempt: 1, offset: 2 * (28 + 4) + 28 + 2 });
  scene.begin();
  scene.add('stdout', 'three');
  expect(plain(text.take(scene.all))).toMatch(/^\n— attempt 2 · .* —\nthree$/);
  expect(text.take(scene.all)).toBe('');
});

test('the first record tells what stands above it', () => {
  scene.add('stdout', 'one');
  scene.add('stdout', 'two');
  text.take([scene.all[1]]);
  expect(text.first).toEqual({ attempt: 1, records: 1, bytes: 31 });
});

test('what is left out when the end is gone to is counted, and nothing is shown twice', () => {
  for (let number = 0; number < 10; number++) {
    scene.add('stdout', `${number}\n`);
  }
  text.take(scene.all.slice(0, 4));
  text.skip();
  expect(plain(text.take(scene.all.slice(7)))).toBe(
    '— 3 records left out: they came faster than this page shows them —\n7\n8\n9\n'
  );
  text.skip();
  scene.add('stdout', '10\n');
  expect(plain(text.take(scene.all.slice(5)))).toBe('10\n');
});

test('how an attempt ended is told from the last change that speaks of it', () => {
  const change = (attempt: number, cause: string, detail: string | null) =>
    ({ attempt, cause, detail }) as HistoryView;
  const history = [
    change(1, 'placed', null),
    change(1, 'failed', 'ended with exit code 3'),
    change(2, 'evict', null),
    change(3, 'migrate', null)
  ];
  const told = [1, 2, 3, 4].map(each => attemptEnding(each, history, trans));
  expect(told).toEqual([
    'attempt 1 failed: ended with exit code 3',
    'attempt 2 was evicted',
    'attempt 3 ended: moved to another place',
    ''
  ]);
});
