/** The requests of the API that a page makes, typed. Every failure is an ApiError. */
import { ServerConnection } from '@jupyterlab/services';
import { nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { apiUrl, IRequest, request } from './rest';
import {
  CancelRequest,
  HistoryView,
  JobList,
  JobView,
  ShareRequest,
  StepsView,
  WhyView
} from './schemas';

/** Which jobs; all that are given must hold. */
export interface IJobQuery {
  ids?: readonly string[];
  cell?: string;
  notebook?: string;
  mine?: boolean;
  limit?: number;
  before?: string;
}

/** Which log; without an attempt that of all attempts. */
export interface ILogQuery {
  rank?: number;
  attempt?: number;
}

export class GpuClient {
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly trans: TranslationBundle = nullTranslator.load(
      'jupyter_gpucluster'
    )
  ) {}

  job(id: string): Promise<JobView> {
    return this.ask(jobPath(id));
  }

  /** Newest first. */
  jobs(query: IJobQuery = {}): Promise<JobList> {
    const { ids, ...others } = query;
    return this.ask('jobs', { query: { id: ids?.join(','), ...others } });
  }

  why(id: string): Promise<WhyView> {
    return this.ask(jobPath(id, 'why'));
  }

  history(id: string): Promise<HistoryView[]> {
    return this.ask(jobPath(id, 'history'));
  }

  /** Step reports of the newest attempt, or another one; at most `limit`, spread evenly. */
  steps(id: string, limit?: number, attempt?: number): Promise<StepsView> {
    return this.ask(jobPath(id, 'steps'), { query: { limit, attempt } });
  }

  cancel(id: string, reason?: string): Promise<JobView> {
    const body: CancelRequest = reason ? { reason } : {};
    return this.ask(jobPath(id, 'cancel'), { method: 'POST', body });
  }

  share(id: string, share: ShareRequest['share']): Promise<JobView> {
    const body: ShareRequest = { share };
    return this.ask(jobPath(id, 'share'), { method: 'POST', body });
  }

  /** Where a job's log can be had as it stands now, in lines of JSON (StreamItem). */
  logUrl(id: string, query: ILogQuery = {}): string {
    const { rank, attempt } = query;
    return apiUrl(this.settings, jobPath(id, 'log'), {
      follow: 0,
      rank,
      only_attempt: attempt,
      ...this.credential()
    });
  }

  /** As Jupyter does it: in an address only where cookies do not reach. */
  private credential(): Record<string, string> {
    const { appendToken, token } = this.settings;
    return appendToken && token ? { token } : {};
  }

  private ask<T>(path: string, asked?: IRequest): Promise<T> {
    return request(this.settings, path, asked, this.trans);
  }
}

function jobPath(id: string, part = ''): string {
  const path = `jobs/${encodeURIComponent(id)}`;
  return part ? `${path}/${part}` : path;
}
