/** Requests to the server extension, and what goes wrong with them in sentences. Paths are relative to the Jupyter server's base URL. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { ApiError } from './errors';
import { ErrorBody } from './schemas';

const ROOT = 'gpucluster/api/v1';

export interface IRequest {
  method?: 'GET' | 'POST';
  /** What is undefined is left out. */
  query?: Record<string, string | number | boolean | undefined>;
  /** Sent as JSON. */
  body?: unknown;
  signal?: AbortSignal;
}

/** The address of a resource of the API, with its query. */
export function apiUrl(
  settings: ServerConnection.ISettings,
  path: string,
  query: IRequest['query'] = {}
): string {
  const url = URLExt.join(settings.baseUrl, ROOT, path);
  const words = Object.entries(query)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return words.length > 0 ? `${url}?${words.join('&')}` : url;
}

/** Ask the API and give its JSON answer; every failure is an ApiError, but for an abort of the caller's own. */
export async function request<T>(
  settings: ServerConnection.ISettings,
  path: string,
  asked: IRequest = {},
  trans: TranslationBundle = nullTranslator.load('jupyter_gpucluster')
): Promise<T> {
  const { method = 'GET', query, body, signal } = asked;
  const url = apiUrl(settings, path, query);
  const init: RequestInit = {
    method,
    signal,
    ...(body === undefined
      ? {}
      : {
          body: JSON.stringify(body),
          headers: { 'Content-Type': 'application/json' }
        })
  };
  let response: Response;
  let text: string;
  try {
    response = await ServerConnection.makeRequest(url, init, settings);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) {
      throw error;
    }
    throw noAnswer(trans);
  }
  const answer = parsed(text);
  if (!response.ok) {
    throw failure(response.status, answer, trans);
  }
  if (answer === undefined) {
    throw notOurs(trans);
  }
  return answer as T;
}

/** Nobody answered. */
export function noAnswer(trans: TranslationBundle): ApiError {
  return new ApiError(0, {
    code: 'no_connection',
    reason: trans.__('The Jupyter server does not answer.'),
    hint: trans.__('Check that it runs and that this computer is online.')
  });
}

/** An answer that says that it went well, and is not the API's: most likely a login page. */
function notOurs(trans: TranslationBundle): ApiError {
  return new ApiError(502, {
    code: 'bad_answer',
    reason: trans.__('Something else than the Jupyter server has answered.'),
    hint: trans.__('You may have to log in again: reload the page.')
  });
}

/** What an answer says that is not the one that was asked for. */
export async function refusal(
  response: Response,
  trans: TranslationBundle
): Promise<ApiError> {
  return failure(response.status, parsed(await response.text()), trans);
}

function failure(
  status: number,
  answer: unknown,
  trans: TranslationBundle
): ApiError {
  const error = (answer as { error?: ErrorBody } | undefined)?.error;
  if (typeof error?.reason === 'string') {
    return new ApiError(status, error);
  }
  return new ApiError(status, explained(status, answer, trans));
}

/** What an answer means that is not the API's own: the Jupyter server's, or that of a proxy before it. */
function explained(
  status: number,
  answer: unknown,
  trans: TranslationBundle
): ErrorBody {
  if (status === 401 || status === 403) {
    return {
      code: 'not_logged_in',
      reason: trans.__('The Jupyter server wants you to log in.'),
      hint: trans.__('Reload the page to log in again.')
    };
  }
  if (status === 404) {
    return {
      code: 'not_found',
      reason: trans.__('The Jupyter server knows no GPU cluster.'),
      hint: trans.__(
        'Is the server extension enabled? "jupyter server extension list" tells.'
      )
    };
  }
  if (status >= 502 && status <= 504) {
    return {
      code: 'proxy',
      reason: trans.__(
        'The Jupyter server cannot be reached through the proxy before it (%1).',
        status
      ),
      hint: trans.__('Try again in a moment.')
    };
  }
  const message = (answer as { message?: unknown } | undefined)?.message;
  return {
    code: 'http',
    reason:
      typeof message === 'string' && message
        ? trans.__('The Jupyter server answered: %1 (%2).', message, status)
        : trans.__('The Jupyter server answered with error %1.', status),
    hint: null
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
