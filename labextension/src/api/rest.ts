/** Requests to the server extension. Paths are relative to the Jupyter server's base URL. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

export interface IClusterStatus {
  cluster: string;
  simulated: boolean;
  nodes: number;
  gpus: number;
  gpus_used: number;
  jobs: Record<string, number>;
}

export interface IQueue {
  name: string;
  is_leaf: boolean;
  guaranteed: Record<string, number>;
  used: Record<string, number>;
  waiting: number;
  running: number;
}

/** The API's error body as an exception: what went wrong and what to do. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly hint: string | null
  ) {
    super(message);
  }
}

/** GET `gpucluster/api/v1/<path>` and parse the JSON answer; throws ApiError. */
export async function get<T>(
  settings: ServerConnection.ISettings,
  path: string
): Promise<T> {
  const url = URLExt.join(settings.baseUrl, 'gpucluster/api/v1', path);
  const response = await ServerConnection.makeRequest(url, {}, settings);
  const body = await response.json().catch(() => null);
  if (!response.ok) {
    const error = body?.error;
    throw new ApiError(
      error?.reason ?? response.statusText,
      response.status,
      error?.hint ?? null
    );
  }
  return body as T;
}
