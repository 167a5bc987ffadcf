import { ServerConnection } from '@jupyterlab/services';

import { GpuClient } from '../client';
import { ApiError } from '../errors';
import { jobView } from '../../model/testing';

type Answer = { status?: number; text?: string } | Error;

let asked: Request[];
let answer: Answer;

/** As the browser would: a request and its answer, without a network. */
async function fetch(request: Request): Promise<Response> {
  asked.push(request);
  if (answer instanceof Error) {
    throw answer;
  }
  const { status = 200, text = '' } = answer;
  return {
    ok: status < 400,
    status,
    statusText: '',
    text: async () => text
  } as Response;
}

class FakeRequest {
  constructor(
    readonly url: string,
    readonly init: RequestInit
  ) {}
  readonly headers = new Map(Object.entries(this.init.headers ?? {}));
}

const settings = {
  ...ServerConnection.makeSettings({
    baseUrl: 'http://localhost/user/ada%40b/',
    wsUrl: 'ws://localhost/user/ada%40b/',
    token: 'secret',
    appendToken: false
  }),
  init: {},
  fetch: fetch as unknown as typeof window.fetch,
  Request: class extends FakeRequest {
    readonly headers = Object.assign(
      new Map(Object.entries(this.init.headers ?? {})),
      { append: () => undefined }
    );
  } as unknown as typeof Request
} as ServerConnection.ISettings;

const client = new GpuClient(settings);
const sent = () => {
  const { url, init } = asked[0] as unknown as FakeRequest;
  return { method: init.method, url, body: init.body };
};

beforeEach(() => {
  asked = [];
  answer = { text: JSON.stringify(jobView()) };
});

describe('requests', () => {
  const root = 'http://localhost/user/ada%40b/gpucluster/api/v1';

  it('go below the base URL of the Jupyter server', async () => {
    await expect(client.job('abc')).resolves.toEqual(jobView());
    expect(sent()).toMatchObject({ method: 'GET', url: `${root}/jobs/abc` });
  });

  it('carry what was asked for and nothing else', async () => {
    await client.jobs({ ids: ['a', 'b'], notebook: 'my notes/x&y.ipynb' });
    expect(sent().url).toBe(
      `${root}/jobs?id=${encodeURIComponent('a,b')}&notebook=my%20notes%2Fx%26y.ipynb`
    );
    asked = [];
    await client.jobs();
    expect(sent().url).toBe(`${root}/jobs`);
  });

  it.each([
    ['cancel', () => client.cancel('a'), 'jobs/a/cancel', {}],
    [
      'cancel with a reason',
      () => client.cancel('a', 'too slow'),
      'jobs/a/cancel',
      { reason: 'too slow' }
    ],
    [
      'share',
      () => client.share('a', 'queue'),
      'jobs/a/share',
      { share: 'queue' }
    ]
  ])('%s posts JSON', async (_, call, path, body) => {
    await call();
    expect(sent()).toEqual({
      method: 'POST',
      url: `${root}/${path}`,
      body: JSON.stringify(body)
    });
    expect(asked[0].headers.get('Content-Type')).toBe('application/json');
  });

  it.each([
    ['why', () => client.why('a'), 'jobs/a/why'],
    ['history', () => client.history('a'), 'jobs/a/history'],
    ['steps', () => client.steps('a', 240), 'jobs/a/steps?limit=240'],
    ['steps', () => client.steps('a', 9, 2), 'jobs/a/steps?limit=9&attempt=2']
  ])('%s is one GET', async (_, call, path) => {
    await call();
    expect(sent()).toMatchObject({ method: 'GET', url: `${root}/${path}` });
  });

  it('name no path that the caller did not mean', async () => {
    await client.job('../status?x');
    expect(sent().url).toBe(`${root}/jobs/..%2Fstatus%3Fx`);
  });

  it('for a download are addresses, with the token only where Jupyter puts it there', () => {
    expect(client.logUrl('a')).toBe(`${root}/jobs/a/log?follow=0`);
    const across = new GpuClient({ ...settings, appendToken: true });
    expect(across.logUrl('a', { rank: 1, attempt: 2 })).toBe(
      `${root}/jobs/a/log?follow=0&rank=1&only_attempt=2&token=secret`
    );
  });
});

describe('what goes wrong', () => {
  const failure = async (): Promise<ApiError> => {
    const error = await client.why('a').then(
      () => null,
      reason => reason
    );
    expect(error).toBeInstanceOf(ApiError);
    return error;
  };

  it("is said in the scheduler's words where there are any", async () => {
    const body = {
      code: 'conflict',
      reason: 'Job 7 has succeeded already.',
      hint: 'Look at its result.'
    };
    answer = { status: 409, text: JSON.stringify({ error: body }) };
    const error = await failure();
    expect(error.status).toBe(409);
    expect(error.body).toEqual(body);
    expect(error.sentence).toBe(
      'Job 7 has succeeded already. Look at its result.'
    );
    expect(error.isAway).toBe(false);
  });

  it.each([
    [
      'no network',
      new TypeError('Failed to fetch'),
      0,
      true,
      'The Jupyter server does not answer. Check that it runs and that this computer is online.'
    ],
    [
      "a proxy's page",
      { status: 502, text: '<html><h1>Bad Gateway</h1></html>' },
      502,
      true,
      'The Jupyter server cannot be reached through the proxy before it (502). Try again in a moment.'
    ],
    [
      'a login that ran out',
      { status: 403, text: '{"message": "Forbidden", "reason": null}' },
      403,
      false,
      'The Jupyter server wants you to log in. Reload the page to log in again.'
    ],
    [
      'a login page in place of the answer',
      { status: 200, text: '<!DOCTYPE html><title>Login</title>' },
      502,
      true,
      'Something else than the Jupyter server has answered. You may have to log in again: reload the page.'
    ],
    [
      'a server without the extension',
      { status: 404, text: '<html>404 : Not Found</html>' },
      404,
      false,
      'The Jupyter server knows no GPU cluster. Is the server extension enabled? "jupyter server extension list" tells.'
    ],
    [
      "an error of Jupyter's own",
      { status: 400, text: '{"message": "Bad Request: host"}' },
      400,
      false,
      'The Jupyter server answered: Bad Request: host (400).'
    ],
    [
      'an error without words',
      { status: 500, text: '' },
      500,
      false,
      'The Jupyter server answered with error 500.'
    ]
  ] as [string, Answer, number, boolean, string][])(
    'is a sentence for a person: %s',
    async (_, given, status, isAway, sentence) => {
      answer = given;
      const error = await failure();
      expect(error.sentence).toBe(sentence);
      expect(error.status).toBe(status);
      expect(error.isAway).toBe(isAway);
    }
  );
});
