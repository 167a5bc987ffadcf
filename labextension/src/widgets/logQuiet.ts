/**
 * What a log may not do to the page that shows it. A log is whatever some job wrote, often somebody else's: it may colour
 * text and move within the lines in view, as progress bars do; it may not reach anything else.
 */
import type { IFunctionIdentifier, Terminal } from '@xterm/xterm';

/**
 * Operating system commands: titles (0, 1, 2), colours of the palette (4, 10 to 12, 104, 110 to 112), the folder (7),
 * links (8: a click would ask and go there), notifications (9, 777), the clipboard (52), images and more (1337).
 */
const COMMANDS = [
  0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 50, 51, 52,
  104, 105, 110, 111, 112, 113, 114, 117, 118, 119, 133, 633, 777, 1337
];

/** Modes (another screen, mouse reports, wrapping …), questions to the terminal, its window, scroll regions, cursors, resets. */
const CONTROLS: IFunctionIdentifier[] = [
  { final: 'h' },
  { final: 'l' },
  { prefix: '?', final: 'h' },
  { prefix: '?', final: 'l' },
  { final: 'c' },
  { prefix: '>', final: 'c' },
  { prefix: '=', final: 'c' },
  { final: 'n' },
  { prefix: '?', final: 'n' },
  { intermediates: '$', final: 'p' },
  { prefix: '?', intermediates: '$', final: 'p' },
  { intermediates: '!', final: 'p' },
  { intermediates: ' ', final: 'q' },
  { final: 'r' },
  { final: 't' }
];

/** Erasing the screen (2) or what was scrolled away (3): a log keeps what it has shown. */
const ERASING_ALL = new Set([2, 3]);

export function quiet(terminal: Terminal): void {
  const { parser } = terminal;
  for (const command of COMMANDS) {
    parser.registerOscHandler(command, () => true);
  }
  for (const control of CONTROLS) {
    parser.registerCsiHandler(control, () => true);
  }
  for (const prefix of [undefined, '?']) {
    parser.registerCsiHandler({ prefix, final: 'J' }, ([what]) =>
      ERASING_ALL.has(what as number)
    );
  }
  parser.registerEscHandler({ final: 'c' }, () => true); // reset
  parser.registerEscHandler({ intermediates: '#', final: '8' }, () => true); // fills the screen
}
