import './noCanvas';

import { SearchAddon } from '@xterm/addon-search';
import { Terminal } from '@xterm/xterm';

import { LogTerminal, pieces, SCROLLBACK } from '../logTerminal';

const ROWS = 10;

let terminal: Terminal;
let log: LogTerminal;

/** A real terminal that is not drawn. */
beforeEach(() => {
  terminal = new Terminal({
    rows: ROWS,
    cols: 80,
    scrollback: SCROLLBACK,
    convertEol: true,
    allowProposedApi: true
  });
  const searching = new SearchAddon({ highlightLimit: 1000 });
  terminal.loadAddon(searching);
  const host = document.createElement('div');
  log = new LogTerminal(host, terminal, { fit: () => undefined }, searching);
});

afterEach(() => log.dispose());

function lines(from: number, to: number): string {
  let text = '';
  for (let number = from; number < to; number++) {
    text += `line ${number}\n`;
  }
  return text;
}

function row(at: number): string {
  return terminal.buffer.active.getLine(at)?.translateToString(true) ?? '';
}

const top = () => row(terminal.buffer.active.viewportY);
const bottom = () => row(terminal.buffer.active.viewportY + ROWS - 2);
/** Long enough for everything that is not held back to be shown. */
const settled = () => new Promise(done => window.setTimeout(done, 50));

/** Until it waits for the reader. */
async function held(): Promise<void> {
  while (!log.isHolding) {
    await settled();
  }
}

test('the end stays in view while more comes', async () => {
  await log.write(lines(0, 100));
  await log.write(lines(100, 200));
  expect(log.isFollowing).toBe(true);
  expect(bottom()).toBe('line 199');
  expect(log.newLines).toBe(0);
});

test('who scrolls up stays there, and new lines are counted', async () => {
  await log.write(lines(0, 100));
  terminal.scrollLines(-50);
  expect(log.isFollowing).toBe(false);
  const before = top();
  await log.write(lines(100, 130));
  expect(top()).toBe(before);
  expect(log.newLines).toBe(30);
});

test('who scrolls down to the end follows again', async () => {
  await log.write(lines(0, 100));
  terminal.scrollLines(-50);
  await log.write(lines(100, 130));
  terminal.scrollToBottom();
  expect([log.isFollowing, log.newLines]).toEqual([true, 0]);
  await log.write(lines(130, 140));
  expect(bottom()).toBe('line 139');
});

test('following is switched on and off by hand', async () => {
  await log.write(lines(0, 100));
  log.isFollowing = false;
  const before = top();
  await log.write(lines(100, 200));
  expect(top()).toBe(before);
  log.isFollowing = true;
  expect(bottom()).toBe('line 199');
});

test('switched off while all fits, the first line stays in view', async () => {
  await log.write(lines(0, 3));
  log.isFollowing = false;
  await log.write(lines(3, 100));
  expect(top()).toBe('line 0');
  expect(log.isFollowing).toBe(false);
});

test('what comes beyond the bound pushes out the oldest lines of who follows', async () => {
  await log.write(lines(0, SCROLLBACK + 500));
  expect(log.isFull).toBe(true);
  expect(terminal.buffer.active.length).toBe(SCROLLBACK + ROWS);
  expect(bottom()).toBe(`line ${SCROLLBACK + 499}`);
});

test('what the reader has in view is never pushed out: the rest waits until the reader goes on', async () => {
  await log.write(lines(0, 100));
  terminal.scrollToTop();
  let isDone = false;
  const writing = log.write(lines(100, SCROLLBACK + 5000)).then(() => {
    isDone = true;
  });
  await held();
  expect([isDone, top()]).toEqual([false, 'line 0']);
  terminal.scrollToLine(4000);
  await held();
  const before = top();
  expect([isDone, before]).toEqual([false, 'line 4000']);
  terminal.scrollToBottom();
  await writing;
  expect(bottom()).toBe(`line ${SCROLLBACK + 4999}`);
  expect(log.isHolding).toBe(false);
});

test('a log that is read from its beginning comes page by page, also at the end of each', async () => {
  log.isFollowing = false;
  log.isPaging = true;
  const writing = log.write(lines(0, 2 * SCROLLBACK));
  await held();
  expect(top()).toBe('line 0');
  terminal.scrollToBottom();
  const last = bottom();
  await held();
  expect(log.isFollowing).toBe(false);
  terminal.scrollLines(1);
  expect(bottom()).toBe(last); // where the reader was
  log.isPaging = false; // all has come
  terminal.scrollToBottom();
  await writing;
  expect(log.isFollowing).toBe(true);
  expect(bottom()).toBe(`line ${2 * SCROLLBACK - 1}`);
});

test('cleared, nothing of what waited is shown, and following is as it was', async () => {
  await log.write(lines(0, 100));
  terminal.scrollToTop();
  const writing = log.write(lines(100, SCROLLBACK + 5000));
  await held();
  log.clear();
  await writing;
  await log.write('fresh\n');
  expect([row(0), row(1)]).toEqual(['fresh', '']);
  expect([log.isFollowing, log.isHolding, log.isFull, log.newLines]).toEqual([
    false,
    false,
    false,
    1
  ]);
});

test('progress bars and backspaces are drawn as on a terminal', async () => {
  await log.write(' 10%|█         |\r100%|██████████|\nab\b\bAB\n');
  expect([row(0), row(1)]).toEqual(['100%|██████████|', 'AB']);
});

test('the text to copy has every line, long ones in one piece', async () => {
  await log.write(`first\n${'x'.repeat(200)}\nlast\n`);
  expect(log.text).toBe(`first\n${'x'.repeat(200)}\nlast\n`);
});

test('keys scroll, and no others are taken from the page', async () => {
  await log.write(lines(0, 100));
  // As xterm.js calls it for each key.
  const press = (key: string, init: KeyboardEventInit = {}) => {
    const event = new KeyboardEvent('keydown', {
      key,
      cancelable: true,
      ...init
    });
    (log as unknown as { onKey(event: KeyboardEvent): boolean }).onKey(event);
    return event.defaultPrevented;
  };
  expect(press('Home')).toBe(true);
  expect(top()).toBe('line 0');
  expect(press('ArrowDown')).toBe(true);
  expect(top()).toBe('line 1');
  expect(press('End')).toBe(true);
  expect(bottom()).toBe('line 99');
  expect(['Tab', 'c', 'Enter'].map(key => press(key))).not.toContain(true);
  expect(press('c', { ctrlKey: true })).toBe(false);
});

describe('pieces', () => {
  test('are the whole text in small parts, of few lines each', () => {
    const text = lines(0, 5000) + 'y'.repeat(100_000);
    const parts = [...pieces(text)];
    expect(parts.join('')).toBe(text);
    for (const part of parts) {
      expect(part.length).toBeLessThanOrEqual(32 << 10);
      expect(part.split('\n').length).toBeLessThanOrEqual(501);
    }
    expect([...pieces('')]).toEqual([]);
  });
});
