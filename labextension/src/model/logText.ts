/** From a job's log records to what a terminal shows: the same order of things as the kernel's replay.py. */
import { TranslationBundle } from '@jupyterlab/translation';

import { HistoryView, StreamItem } from '../api/schemas';
import { causeText, goneText, joined, localTime, US_PER_MS } from './words';

/** Where a reader of a log stands: behind every record of which it has the text. */
export interface ICursor {
  attempt: number;
  offset: number;
}

/** The first record that a reader got: what stands above it. */
export interface IFirst {
  attempt: number;
  /** Records of the attempt above it, and the bytes they take in the log. */
  records: number;
  bytes: number;
}

/** Bytes of a record's frame before its payload (worker/frames.py, HEADER). */
const HEADER_BYTES = 28;
/** Colours and such that a stream may have in force; of more, the newest. */
const STYLES_KEPT = 16;
/** A sequence that is not finished within so many characters is not one. */
const SEQUENCE_CHARS = 64;

const RESET = '\x1b[0m';
/** The colours of standard error and of our own lines: places of the terminal's palette, which its theme fills. */
export const STDERR_COLOUR = 95;
export const NOTE_COLOUR = 66;
const STDERR_STYLE = `\x1b[38;5;${STDERR_COLOUR}m`;
const NOTE_STYLE = `\x1b[0;38;5;${NOTE_COLOUR}m`;

/* eslint-disable no-control-regex */
const STYLE = /\x1b\[([0-9;:]*)m/g;
const BACK_TO_DEFAULT = /\x1b\[(?:0*|39)m/g;
const BEGUN_SEQUENCE = /\x1b(?:\[[0-9;:?]*)?$/;
const LINE_END = /\n(?:\x1b\[[0-9;:]*m)*$/;
const CONTROL = /[\x00-\x1f\x7f-\x9f]/g;
const NOT_ASCII = /[^\x00-\x7f]/;
/* eslint-enable no-control-regex */

type StreamName = 'stdout' | 'stderr';

/** One stream of the job: characters and sequences that are not whole yet, and the styles in force. */
class Source {
  constructor(readonly base: string) {}

  decode(payload: string): string {
    const raw = atob(payload);
    if (!this.isMidCharacter && !NOT_ASCII.test(raw)) {
      return this.whole(raw);
    }
    const bytes = Uint8Array.from(raw, character => character.charCodeAt(0));
    this.isMidCharacter = bytes.length > 0 && bytes[bytes.length - 1] > 0x7f;
    return this.whole(this.decoder.decode(bytes, { stream: true }));
  }

  /** What is left when nothing more comes. */
  end(): string {
    const rest = this.held + this.decoder.decode();
    this.held = '';
    this.styles = [];
    this.isMidCharacter = false;
    return rest;
  }

  /** What brings a terminal into this stream's style from none. */
  get style(): string {
    return this.base + this.styles.join('');
  }

  /** The text with whole sequences; notes the styles, and goes back to the stream's own where they end. */
  private whole(text: string): string {
    let ready = this.held + text;
    this.held = '';
    const begun = BEGUN_SEQUENCE.exec(ready.slice(-SEQUENCE_CHARS));
    if (begun) {
      this.held = begun[0];
      ready = ready.slice(0, -begun[0].length);
    }
    if (!ready.includes('\x1b[')) {
      return ready;
    }
    for (const [sequence, parameters] of ready.matchAll(STYLE)) {
      this.note(sequence, parameters);
    }
    return this.base
      ? ready.replace(BACK_TO_DEFAULT, found => found + this.base)
      : ready;
  }

  private note(sequence: string, parameters: string): void {
    if (/^0*$/.test(parameters)) {
      this.styles = [];
      return;
    }
    if (/^0+;/.test(parameters)) {
      this.styles = [];
    }
    this.styles.push(sequence);
    this.styles = this.styles.slice(-STYLES_KEPT);
  }

  private readonly decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  private isMidCharacter = false;
  private held = '';
  private styles: string[] = [];
}

/** What became of an attempt, for the line before the next one; "" where that is not known. */
export type Ending = (attempt: number) => string;

/**
 * The text of one log as its records come; what was seen before is left out, wherever a stream begins anew.
 *
 * `styled`: for a terminal, with colours of ours; else for a file, with those of the job alone.
 */
export class LogText {
  constructor(
    private readonly trans: TranslationBundle,
    private readonly ending: Ending = () => '',
    private readonly styled = true
  ) {
    this.sources = {
      stdout: new Source(''),
      stderr: new Source(styled ? STDERR_STYLE : '')
    };
  }

  /** Where to go on; null before anything came. */
  cursor: ICursor | null = null;
  first: IFirst | null = null;
  /** Nothing is to be shown so far, though records may have come: how a task is told says nothing by itself. */
  isEmpty = true;
  /** When the newest record was written, in microseconds; null before there is one. */
  newestUs: number | null = null;
  /** Bytes of records that were taken. */
  takenBytes = 0;

  take(items: readonly StreamItem[]): string {
    const parts: string[] = [];
    for (const item of items) {
      if (item.type === 'record') {
        this.record(item, parts);
      } else if (item.type === 'attempt') {
        this.attempt(item, parts);
      } else if (item.type === 'gone') {
        this.seam(parts, 0);
        this.note(parts, goneText(item, this.trans));
      } else if (item.type === 'end') {
        this.seam(parts, 0);
        this.close(parts);
      }
    }
    const text = parts.join('');
    this.isEmpty &&= !text;
    return text;
  }

  /** The next records are asked for from a later place on: what lies between is told, not shown. */
  skip(): void {
    this.skipping = true;
  }

  // ---- what comes

  private record(item: StreamItem, parts: string[]): void {
    const attempt = item.attempt ?? 0;
    const offset = item.offset ?? 0;
    const payload = item.payload ?? '';
    if (this.isBehind(attempt, offset)) {
      return;
    }
    const bytes = HEADER_BYTES + bytesOf(payload);
    this.begin(item, parts);
    this.cursor = { attempt, offset: offset + bytes };
    this.sequence = item.sequence ?? 0;
    this.newestUs = item.time_us ?? null;
    this.takenBytes += bytes;
    this.seam(parts, item.time_us ?? 0);
    if (item.kind === 'stdout' || item.kind === 'stderr') {
      this.text(item.kind, payload, parts);
    } else {
      this.told(item, parts);
    }
  }

  private isBehind(attempt: number, offset: number): boolean {
    const { cursor } = this;
    return (
      cursor !== null &&
      (attempt < cursor.attempt ||
        (attempt === cursor.attempt && offset < cursor.offset))
    );
  }

  /** The first record ever, or the first after a gap. */
  private begin(item: StreamItem, parts: string[]): void {
    const records = item.sequence ?? 0;
    if (this.first === null) {
      this.first = {
        attempt: item.attempt ?? 0,
        records,
        bytes: item.offset ?? 0
      };
    }
    if (!this.skipping) {
      return;
    }
    this.skipping = false;
    const isSame = this.cursor?.attempt === item.attempt;
    const skipped = isSame ? records - this.sequence - 1 : records;
    if (skipped > 0) {
      this.note(
        parts,
        this.trans.__(
          '%1 records left out: they came faster than this page shows them',
          skipped.toLocaleString()
        )
      );
    }
  }

  private attempt(item: StreamItem, parts: string[]): void {
    const number = item.attempt ?? 0;
    if (this.cursor !== null && number < this.cursor.attempt) {
      return;
    }
    this.seam(parts, 0);
    if (number !== this.cursor?.attempt) {
      this.cursor = { attempt: number, offset: item.offset ?? 0 };
      this.waitingSeam = number > 1 ? item : null;
    }
  }

  /** The line between two attempts, drawn when it is known at what time the later one wrote something. */
  private seam(parts: string[], timeUs: number): void {
    const begun = this.waitingSeam;
    this.waitingSeam = null;
    if (begun) {
      this.close(parts);
      this.note(
        parts,
        seamText(
          begun.attempt ?? 0,
          begun.nodes ?? [],
          timeUs,
          this.ending((begun.attempt ?? 0) - 1),
          this.trans
        )
      );
    }
  }

  // ---- what is written

  private text(name: StreamName, payload: string, parts: string[]): void {
    const { style } = this.sources[name];
    this.say(name, style, this.sources[name].decode(payload), parts);
  }

  /** `style`: what the stream was in before this text. */
  private say(
    name: StreamName,
    style: string,
    text: string,
    parts: string[]
  ): void {
    if (!text) {
      return;
    }
    if (this.styled && this.speaking !== name) {
      if (this.speaking !== null || style) {
        parts.push(RESET, style);
      }
      this.speaking = name;
    }
    parts.push(text);
    this.isLineStart = LINE_END.test(text.slice(-SEQUENCE_CHARS));
  }

  /** A display as its plain text, an error as its traceback, and what the supervisor says. */
  private told(item: StreamItem, parts: string[]): void {
    const said = parsed(item.payload ?? '');
    if (item.kind === 'display') {
      const data = (said.data ?? {}) as Record<string, unknown>;
      this.block(parts, String(data['text/plain'] ?? ''));
    } else if (item.kind === 'error') {
      const lines = Array.isArray(said.traceback) ? said.traceback : [];
      const short = `${said.ename ?? 'Error'}: ${said.evalue ?? ''}`;
      this.block(parts, lines.length > 0 ? lines.join('\n') : short);
    } else if (item.kind === 'status') {
      const told = statusText(said, this.trans);
      if (told) {
        const timeUs = item.time_us ?? 0;
        this.note(parts, joined([told, timeUs ? clock(timeUs) : '']));
      }
    }
  }

  /** Text in lines of its own, in no style of the job's. */
  private block(parts: string[], text: string): void {
    if (text) {
      this.own(parts);
      parts.push(text, this.styled ? RESET : '', '\n');
    }
  }

  /** A line of ours. */
  private note(parts: string[], text: string): void {
    this.own(parts);
    const line = `— ${text.replace(CONTROL, ' ')} —`;
    parts.push(this.styled ? `${NOTE_STYLE}${line}${RESET}` : line, '\n');
  }

  private own(parts: string[]): void {
    if (!this.isLineStart) {
      parts.push('\n');
    }
    parts.push(this.styled ? RESET : '');
    this.isLineStart = true;
    this.speaking = null;
  }

  /** Nothing more comes of this attempt: what is not whole is shown as it is. */
  private close(parts: string[]): void {
    for (const name of ['stdout', 'stderr'] as const) {
      const { style } = this.sources[name];
      this.say(name, style, this.sources[name].end(), parts);
    }
  }

  private readonly sources: Record<StreamName, Source>;
  private speaking: StreamName | null = null;
  private isLineStart = true;
  private sequence = -1;
  private skipping = false;
  private waitingSeam: StreamItem | null = null;
}

/** The line before attempt 2, 3 …: where it runs, when it began, what became of the one before. */
export function seamText(
  number: number,
  nodes: readonly string[],
  timeUs: number,
  ending: string,
  trans: TranslationBundle
): string {
  const place =
    nodes.length > 0
      ? trans.__('attempt %1 on %2', number, nodes.join(', '))
      : trans.__('attempt %1', number);
  const told = ending ? `${place} (${ending})` : place;
  return joined([told, timeUs ? clock(timeUs) : '']);
}

/** What became of an attempt: "attempt 1 failed: ended with exit code 3"; "" where the history does not tell. */
export function attemptEnding(
  number: number,
  history: readonly HistoryView[],
  trans: TranslationBundle
): string {
  const entry = [...history].reverse().find(each => each.attempt === number);
  if (!entry) {
    return '';
  }
  const told = endingOf(number, entry.cause, trans);
  return entry.detail ? `${told}: ${entry.detail}` : told;
}

function endingOf(
  number: number,
  cause: string,
  trans: TranslationBundle
): string {
  switch (cause) {
    case 'lost':
      return trans.__('attempt %1 was lost', number);
    case 'failed':
      return trans.__('attempt %1 failed', number);
    case 'evict':
      return trans.__('attempt %1 was evicted', number);
    case 'drain':
      return trans.__('attempt %1 had to leave its node', number);
    default:
      return cause
        ? trans.__('attempt %1 ended: %2', number, causeText(cause, trans))
        : trans.__('attempt %1 ended', number);
  }
}

/** A STATUS record (worker/frames.py) as a line; "" for one that tells a reader nothing. */
export function statusText(
  said: Record<string, unknown>,
  trans: TranslationBundle
): string {
  switch (said.event) {
    case 'notice':
      return said.cause
        ? trans.__('told to stop: %1', causeText(String(said.cause), trans))
        : String(said.text ?? '');
    case 'truncated':
      return trans.__(
        'the job wrote more than its log takes; what came after this was dropped'
      );
    case 'suspended':
      return trans.__('suspended');
    case 'resumed':
      return trans.__('resumed');
    default:
      return '';
  }
}

/** The length of what a base64 text stands for. */
function bytesOf(base64: string): number {
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0;
  return (base64.length / 4) * 3 - padding;
}

/** The JSON of a record; what a task wrote may be anything. */
function parsed(payload: string): Record<string, unknown> {
  try {
    const bytes = Uint8Array.from(atob(payload), each => each.charCodeAt(0));
    const said = JSON.parse(new TextDecoder().decode(bytes));
    return said && typeof said === 'object' ? said : {};
  } catch {
    return {};
  }
}

function clock(timeUs: number): string {
  return localTime(timeUs, Date.now() * US_PER_MS);
}
