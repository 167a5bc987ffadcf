/** Log records as the scheduler sends them, for tests of what shows logs. */
import { nullTranslator } from '@jupyterlab/translation';

import { StreamItem } from '../../api/schemas';

export const trans = nullTranslator.load('jupyter_gpucluster');

/** Bytes of a record's frame before its payload. */
const HEADER_BYTES = 28;
/** 2025-10-09 in the tests' zone, whatever it is. */
export const TIME_US = 1_760_000_000_000_000;

export function base64(content: string | readonly number[]): string {
  // eslint-disable-next-line no-control-regex
  if (typeof content === 'string' && /^[\x00-\x7f]*$/.test(content)) {
    return btoa(content);
  }
  const bytes =
    typeof content === 'string' ? new TextEncoder().encode(content) : content;
  return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(''));
}

/** The log of one rank, record after record; `items(attempt, offset)` is what the scheduler would send from there on. */
export class LogScene {
  add(
    kind: string,
    content: string | readonly number[] | Record<string, unknown>
  ): StreamItem {
    const payload = base64(
      typeof content === 'string' || Array.isArray(content)
        ? (content as string)
        : JSON.stringify(content)
    );
    const item: StreamItem = {
      type: 'record',
      attempt: this.attempt,
      kind,
      sequence: this.sequence,
      offset: this.offset,
      time_us: TIME_US + this.sequence,
      payload,
      reason: null,
      nodes: []
    };
    this.sequence += 1;
    this.offset += HEADER_BYTES + atob(payload).length;
    this.all.push(item);
    return item;
  }

  begin(nodes: string[] = []): StreamItem {
    this.attempt += 1;
    this.offset = 0;
    this.sequence = 0;
    const item = { type: 'attempt', attempt: this.attempt, offset: 0, nodes };
    this.all.push(item);
    return item;
  }

  from(attempt: number, offset: number): StreamItem[] {
    return this.all.filter(
      item =>
        item.attempt! > attempt ||
        (item.attempt === attempt &&
          item.type === 'record' &&
          item.offset! >= offset)
    );
  }

  readonly all: StreamItem[] = [];
  private attempt = 1;
  private offset = 0;
  private sequence = 0;
}

/** What a reader sees of a terminal's text: no colours. */
export function plain(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\x1b\[[0-9;:]*m/g, '');
}
