/** The sidebar panel: the cluster in a few lines, refreshed while it is visible. */
import { ServerConnection } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Poll } from '@lumino/polling';
import * as React from 'react';

import { ApiError, get, IClusterStatus, IQueue } from '../api/rest';

const REFRESH_MS = 2000;
const REFRESH_MAX_MS = 30000;
const MILLI = 1000; // amounts of GPUs are thousandths

export class ClusterPanel extends ReactWidget {
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-gpucluster-panel');
    this.poll = new Poll({
      auto: false,
      name: 'jupyter-gpucluster:status',
      factory: () => this.refresh(),
      frequency: { interval: REFRESH_MS, backoff: true, max: REFRESH_MAX_MS },
      standby: () => !this.isVisible
    });
  }

  dispose(): void {
    this.poll.dispose();
    super.dispose();
  }

  protected onAfterShow(): void {
    void this.poll.start();
    void this.poll.refresh();
  }

  protected onAfterHide(): void {
    void this.poll.stop();
  }

  protected render(): JSX.Element {
    return (
      <>
        <h2>{this.trans.__('GPU cluster')}</h2>
        {this.error && (
          <p role="alert" className="jp-gpucluster-error">
            {this.error}
          </p>
        )}
        {this.status && this.renderStatus(this.status)}
        {this.queues.length > 0 && this.renderQueues()}
      </>
    );
  }

  private renderStatus(status: IClusterStatus): JSX.Element {
    return (
      <p>
        {this.trans.__(
          '%1: %2 of %3 GPUs in use on %4 nodes',
          status.cluster,
          status.gpus_used,
          status.gpus,
          status.nodes
        )}
        {status.simulated && (
          <span className="jp-gpucluster-badge">
            {this.trans.__('simulated GPUs')}
          </span>
        )}
      </p>
    );
  }

  private renderQueues(): JSX.Element {
    return (
      <table>
        <thead>
          <tr>
            <th scope="col">{this.trans.__('Queue')}</th>
            <th scope="col">{this.trans.__('GPUs')}</th>
            <th scope="col">{this.trans.__('Running')}</th>
            <th scope="col">{this.trans.__('Waiting')}</th>
          </tr>
        </thead>
        <tbody>
          {this.queues.map(queue => (
            <tr key={queue.name}>
              <th scope="row">{queue.name}</th>
              <td>
                {(queue.used.gpu ?? 0) / MILLI} /{' '}
                {(queue.guaranteed.gpu ?? 0) / MILLI}
              </td>
              <td>{queue.running}</td>
              <td>{queue.waiting}</td>
            </tr>
          ))}
        </tbody>
      </table>
    );
  }

  private async refresh(): Promise<void> {
    try {
      const [status, queues] = await Promise.all([
        get<IClusterStatus>(this.settings, 'status'),
        get<IQueue[]>(this.settings, 'queues')
      ]);
      this.status = status;
      this.queues = queues.filter(queue => queue.is_leaf);
      this.error = null;
    } catch (reason) {
      const hint = reason instanceof ApiError ? reason.body.hint : null;
      this.error = [String((reason as Error).message), hint]
        .filter(Boolean)
        .join(' ');
      throw reason; // lets the poll back off
    } finally {
      this.update();
    }
  }

  private readonly poll: Poll;
  private status: IClusterStatus | null = null;
  private queues: IQueue[] = [];
  private error: string | null = null;
}
