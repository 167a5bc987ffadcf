/** A log from its beginning to where it stands now, as text for a file; of any length, in bounded memory. */
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { ApiError } from './errors';
import { LogText } from '../model/logText';
import { noAnswer, refusal } from './rest';
import { StreamItem } from './schemas';

/** Text is gathered in pieces of about so many characters; the browser keeps them where it has room. */
const PIECE_CHARS = 1 << 20;

export interface IWholeLogOptions {
  /** As GpuClient.logUrl gives it. */
  url: string;
  settings: ServerConnection.ISettings;
  trans: TranslationBundle;
  signal: AbortSignal;
  /** Told now and then how many bytes of the log have come. */
  onBytes: (bytes: number) => void;
}

/** Raises ApiError, or the signal's own error when it was told to stop. */
export async function wholeLog(options: IWholeLogOptions): Promise<Blob> {
  const { url, settings, trans, signal } = options;
  try {
    const init = { signal };
    const response = await ServerConnection.makeRequest(url, init, settings);
    if (response.ok && response.body) {
      return await textOf(response.body, options);
    }
    throw await refusal(response, trans);
  } catch (error) {
    throw error instanceof ApiError || signal.aborted ? error : noAnswer(trans);
  }
}

async function textOf(
  body: ReadableStream<Uint8Array>,
  { trans, onBytes }: IWholeLogOptions
): Promise<Blob> {
  const text = new LogText(trans, undefined, false);
  const blobs: Blob[] = [];
  let piece = '';
  for await (const line of linesOf(body)) {
    piece += text.take([JSON.parse(line) as StreamItem]);
    if (piece.length > PIECE_CHARS) {
      blobs.push(new Blob([piece]));
      piece = '';
      onBytes(text.takenBytes);
    }
  }
  return new Blob([...blobs, piece], { type: 'text/plain;charset=utf-8' });
}

/** The lines of a body as they come. */
export async function* linesOf(
  body: ReadableStream<Uint8Array>
): AsyncIterable<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line) {
        yield line;
      }
    }
    if (done) {
      return;
    }
  }
}
