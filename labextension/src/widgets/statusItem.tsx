/** The cluster in the status bar: GPUs in use and my jobs; a click shows the panel. */
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { gpuIcon } from '../icons';
import { statusLine } from '../model/statusLine';
import { useCluster, useWatch } from '../panels/hooks';
import { IGpuCluster } from '../tokens';
import { Button } from './button';

export interface IStatusItemProps {
  cluster: IGpuCluster;
  trans: TranslationBundle;
  onClick(): void;
}

/** Follows the topic `status` alone. */
export function StatusItem(props: IStatusItemProps): JSX.Element {
  const { cluster, trans } = props;
  useWatch(cluster, { topics: ['status'] });
  useCluster(
    cluster,
    change => change.connection || change.topics.has('status')
  );
  const line = statusLine(cluster, trans);
  return (
    <Button
      className={`jp-gpucluster-statusItem${line.isAway ? ' jp-gpucluster-mod-away' : ''}`}
      title={line.title}
      onClick={props.onClick}
    >
      <gpuIcon.react tag="span" className="jp-gpucluster-statusIcon" />
      <span>{[line.gpus ?? trans.__('GPU'), ...line.jobs].join(' · ')}</span>
      {line.simulated && (
        <span className="jp-gpucluster-statusMark">
          {trans.__('simulated')}
        </span>
      )}
      {line.isAway && (
        <span className="jp-gpucluster-statusMark">{trans.__('away')}</span>
      )}
    </Button>
  );
}

/** While it is hidden it asks for nothing. */
export class StatusItemWidget extends ReactWidget {
  constructor(private readonly props: IStatusItemProps) {
    super();
  }

  /** By the user's settings. */
  get isWanted(): boolean {
    return this._isWanted;
  }

  set isWanted(wanted: boolean) {
    this._isWanted = wanted;
    this.update();
  }

  protected render(): JSX.Element | null {
    return this._isWanted ? <StatusItem {...this.props} /> : null;
  }

  private _isWanted = true;
}
