import { ServerConnection } from '@jupyterlab/services';

import { LogScene, trans } from '../../model/__tests__/logRecords';
import { ApiError } from '../errors';
import { IWholeLogOptions, wholeLog } from '../wholeLog';

/** What the server answers: a body in chunks, which may break off. */
class Answer {
  constructor(
    private readonly chunks: Uint8Array[],
    readonly ok = true,
    readonly status = 200,
    private readonly breaksOff = false
  ) {}

  readonly body = {
    getReader: () => ({
      read: async () => {
        const value = this.chunks.shift();
        if (!value && this.breaksOff) {
          throw new TypeError('network error');
        }
        return { done: !value, value };
      }
    })
  };

  async text(): Promise<string> {
    return new TextDecoder().decode(this.chunks[0]);
  }
}

/** Node's requests do not take jsdom's signals. */
class FakeRequest {
  constructor(readonly url: string) {}
  readonly headers = new Headers();
}

function chunksOf(text: string, size: number): Uint8Array[] {
  const bytes = new TextEncoder().encode(text);
  const count = Math.ceil(bytes.length / size);
  return Array.from({ length: count }, (_, at) =>
    bytes.slice(at * size, (at + 1) * size)
  );
}

const told: number[] = [];
const asked: string[] = [];

function options(answer: Answer, stop = new AbortController()) {
  const answering = async (request: RequestInfo) => {
    asked.push((request as Request).url);
    return answer as unknown as Response;
  };
  const settings = ServerConnection.makeSettings({
    fetch: answering,
    Request: FakeRequest as unknown as typeof Request
  });
  return {
    url: `${settings.baseUrl}gpucluster/api/v1/jobs/abc/log?follow=0`,
    settings,
    trans,
    signal: stop.signal,
    onBytes: (bytes: number) => told.push(bytes)
  } as unknown as IWholeLogOptions;
}

/** jsdom's Blob has no text(). */
function textOf(blob: Blob): Promise<string> {
  return new Promise(done => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.readAsText(blob);
  });
}

beforeEach(() => {
  told.length = 0;
  asked.length = 0;
});

test('the whole log comes as text, wherever the answer is cut', async () => {
  const scene = new LogScene();
  scene.add('stdout', 'grüße 1\n');
  scene.add('stderr', 'warning\n');
  scene.begin(['node-1']);
  scene.add('stdout', '2\n');
  const lines = [...scene.all, { type: 'end' }].map(
    item => `${JSON.stringify(item)}\n`
  );
  for (const size of [1, 7, 10_000]) {
    const blob = await wholeLog(
      options(new Answer(chunksOf(lines.join(''), size)))
    );
    expect(await textOf(blob)).toMatch(
      /^grüße 1\nwarning\n— attempt 2 on node-1 · .* —\n2\n$/
    );
  }
  expect(asked[0]).toContain('/jobs/abc/log?follow=0');
});

test('a long log tells how far it is', async () => {
  const scene = new LogScene();
  for (let number = 0; number < 5; number++) {
    scene.add('stdout', 'x'.repeat(600_000));
  }
  const lines = scene.all.map(item => `${JSON.stringify(item)}\n`);
  const blob = await wholeLog(
    options(new Answer(chunksOf(lines.join(''), 100_000)))
  );
  expect(blob.size).toBe(3_000_000);
  expect(told).toEqual([2 * 600_028, 4 * 600_028]);
});

test('what the API refuses is its sentence', async () => {
  const error = { code: 'forbidden', reason: 'Not yours.', hint: null };
  const body = chunksOf(JSON.stringify({ error }), 10_000);
  await expect(wholeLog(options(new Answer(body, false, 403)))).rejects.toThrow(
    'Not yours.'
  );
});

test('an answer that breaks off is no log', async () => {
  const scene = new LogScene();
  const line = JSON.stringify(scene.add('stdout', 'one\n'));
  const answer = new Answer(chunksOf(`${line}\n`, 10_000), true, 200, true);
  await expect(wholeLog(options(answer))).rejects.toBeInstanceOf(ApiError);
});

test('who stops it is told nothing of the network', async () => {
  const stop = new AbortController();
  stop.abort();
  const answer = new Answer([], true, 200, true);
  await expect(wholeLog(options(answer, stop))).rejects.not.toBeInstanceOf(
    ApiError
  );
});
