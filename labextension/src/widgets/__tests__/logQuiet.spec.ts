/** What xterm.js would do by itself with a stranger's log, and that with `quiet` it does not. */
import './noCanvas';

import { Terminal } from '@xterm/xterm';

import { quiet } from '../logQuiet';

const LINK = '\x1b]8;;https://example.org/\x07click\x1b]8;;\x07';

function open(isQuiet: boolean): Terminal {
  const terminal = new Terminal({
    rows: 5,
    cols: 40,
    allowProposedApi: true,
    disableStdin: true
  });
  if (isQuiet) {
    quiet(terminal);
  }
  return terminal;
}

function write(terminal: Terminal, text: string): Promise<void> {
  return new Promise(done => terminal.write(text, done));
}

function shown(terminal: Terminal): string[] {
  const { active } = terminal.buffer;
  return Array.from(
    { length: active.length },
    (_, row) => active.getLine(row)?.translateToString(true) ?? ''
  ).filter(Boolean);
}

/** How many links the terminal knows; there is no public way to ask. */
function links(terminal: Terminal): number {
  const core = (terminal as unknown as { _core: ICore })._core;
  return core._oscLinkService._dataByLinkId.size;
}

interface ICore {
  _oscLinkService: { _dataByLinkId: Map<number, unknown> };
}

test('a link of the log is plain text; xterm.js by itself would open it after a question', async () => {
  const loud = open(false);
  await write(loud, LINK);
  expect(links(loud)).toBe(1); // so the test would notice
  const terminal = open(true);
  await write(terminal, LINK);
  expect(links(terminal)).toBe(0);
  expect(shown(terminal)).toEqual(['click']);
  expect(terminal.options.linkHandler).toBeNull();
});

test('titles are not taken', async () => {
  const titles: string[] = [];
  const loud = open(false);
  loud.onTitleChange(title => titles.push(title));
  await write(loud, '\x1b]0;one\x07');
  expect(titles).toEqual(['one']);
  const terminal = open(true);
  terminal.onTitleChange(title => titles.push(title));
  await write(terminal, '\x1b]0;two\x07\x1b]2;three\x1b\\text');
  expect([titles, shown(terminal)]).toEqual([['one'], ['text']]);
});

test('nothing reaches the clipboard', async () => {
  const writeText = jest.fn();
  Object.assign(navigator, { clipboard: { writeText, readText: writeText } });
  const terminal = open(true);
  await write(terminal, '\x1b]52;c;ZXZpbA==\x07\x1b]52;c;?\x07text');
  expect(writeText).not.toHaveBeenCalled();
  expect(shown(terminal)).toEqual(['text']);
});

test('nothing is answered: not to questions about the terminal, its cursor, its colours or its window', async () => {
  const answers: string[] = [];
  const terminal = open(true);
  terminal.options.disableStdin = false; // the other guard
  terminal.onData(data => answers.push(data));
  await write(
    terminal,
    '\x1b[c\x1b[>c\x1b[=c\x1b[5n\x1b[6n\x1b[?6n\x1b[18t\x1b[?25$p\x1b]11;?\x07\x1b]4;1;?\x07text'
  );
  expect([answers, shown(terminal)]).toEqual([[], ['text']]);
});

test('what was written stays: no other screen, no reset, no erasing of everything', async () => {
  const terminal = open(true);
  await write(
    terminal,
    'first\r\n\x1b[?1049h\x1b[?47h\x1bc\x1b[2J\x1b[3J\x1b#8'
  );
  await write(terminal, '\x1b[2;3r\x1b[!p\x1b[8;50;50tlast');
  expect(terminal.buffer.active.type).toBe('normal');
  expect(shown(terminal)).toEqual(['first', 'last']);
  expect([terminal.rows, terminal.cols]).toEqual([5, 40]);
});

test('modes of mouse and keyboard stay as they are', async () => {
  const terminal = open(true);
  const before = { ...terminal.modes };
  await write(
    terminal,
    '\x1b[?1000h\x1b[?1003h\x1b[?2004h\x1b[?1h\x1b[?7l\x1b[4h'
  );
  expect({ ...terminal.modes }).toEqual(before);
});

test('colours, moves within the lines in view and the rest of a line stay what they are', async () => {
  const terminal = open(true);
  await write(terminal, 'one\r\ntwo\r\n\x1b[2Atop\x1b[K\r\n\x1b[31mred\x1b[0m');
  expect(shown(terminal)).toEqual(['top', 'red']);
  const cell = terminal.buffer.active.getLine(1)?.getCell(0);
  expect(cell?.getFgColor()).toBe(1);
});
