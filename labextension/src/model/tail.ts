/** The last lines that a job printed, as a terminal shows them. */
import { StreamItem } from '../api/schemas';

/** Of a flood only its end is looked at, and of a long line its beginning is kept. */
const MOST_CHARS = 64 * 1024;
const LINE_CHARS = 500;

/* eslint-disable no-control-regex -- control characters are what is looked for */
/** Colours, movements of the cursor and titles of a terminal. */
const ESCAPES =
  /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
/* eslint-enable no-control-regex */

export class Tail {
  constructor(private readonly most: number) {}

  /** The newest lines, the last one as far as it goes; blank ones at the end are left out. */
  get lines(): readonly string[] {
    const lines = [...this.whole, this.last.trimEnd()];
    while (lines.length && !lines[lines.length - 1]) {
      lines.pop();
    }
    return lines.slice(-this.most);
  }

  /** Takes records of the output in. An attempt begins anew. */
  add(items: readonly StreamItem[]): void {
    let printed = '';
    for (const item of items) {
      if (item.type === 'attempt') {
        this.clear();
        printed = '';
      } else if (item.kind === 'stdout' || item.kind === 'stderr') {
        printed += this.decode(item.kind, item.payload ?? '');
      }
    }
    this.write(printed);
  }

  clear(): void {
    this.whole = [];
    this.last = '';
    this.isBack = false;
    this.decoders.clear();
  }

  private decode(kind: string, payload: string): string {
    let decoder = this.decoders.get(kind);
    if (!decoder) {
      decoder = new TextDecoder(); // a character may be in two records
      this.decoders.set(kind, decoder);
    }
    const bytes = Uint8Array.from(atob(payload), char => char.charCodeAt(0));
    return decoder.decode(bytes, { stream: true });
  }

  private write(printed: string): void {
    const text = printed.slice(-MOST_CHARS).replace(ESCAPES, '');
    const [rest, ...lines] = text.split('\n');
    this.append(rest);
    for (const line of lines) {
      this.whole.push(this.last.trimEnd());
      this.last = '';
      this.isBack = false;
      this.append(line);
    }
    this.whole = this.whole.slice(-this.most);
  }

  /** A carriage return takes the line back to its beginning; what was there stays until something is written over it. */
  private append(text: string): void {
    const parts = text.split('\r');
    parts.forEach((part, index) => {
      this.isBack = this.isBack || index > 0;
      if (part) {
        this.last = (this.isBack ? part : this.last + part).slice(
          0,
          LINE_CHARS
        );
        this.isBack = false;
      }
    });
  }

  private whole: string[] = [];
  private last = '';
  private isBack = false;
  private readonly decoders = new Map<string, TextDecoder>();
}
