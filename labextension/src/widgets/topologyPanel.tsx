/** The topology in the main area: large, for a wall or a second look. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { gpuIcon } from '../icons';
import { Banner, useTrouble } from '../panels/connection';
import { Topology } from '../panels/topology';
import { IGpuCluster } from '../tokens';

export const TOPOLOGY_PANEL_ID = 'jp-gpucluster-topology';

export interface ITopologyPanelOptions {
  cluster: IGpuCluster;
  commands: JupyterFrontEnd['commands'];
  trans: TranslationBundle;
}

/** What it shows is there only while it can be seen: a panel behind another asks for nothing. */
export class TopologyPanel extends ReactWidget {
  constructor(private readonly options: ITopologyPanelOptions) {
    super();
    const { trans } = options;
    this.id = TOPOLOGY_PANEL_ID;
    this.addClass('jp-gpucluster-topologyPanel');
    this.title.label = trans.__('GPU topology');
    this.title.caption = trans.__(
      'The GPUs of the cluster, and who holds them'
    );
    this.title.icon = gpuIcon;
    this.title.closable = true;
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this.title.label);
  }

  protected render(): JSX.Element | null {
    return this.isVisible ? <LargeTopology {...this.options} /> : null;
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.update();
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.update();
  }

  /** Else it would live on, unseen, and could not be opened again. */
  protected onCloseRequest(msg: Message): void {
    super.onCloseRequest(msg);
    this.dispose();
  }

  protected onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    this.node.focus({ preventScroll: true });
  }
}

function LargeTopology(props: ITopologyPanelOptions): JSX.Element {
  const { cluster, trans } = props;
  const { trouble, nowMs } = useTrouble(cluster);
  return (
    <>
      {trouble && (
        <Banner
          cluster={cluster}
          trouble={trouble}
          nowMs={nowMs}
          trans={trans}
        />
      )}
      <div
        className="jp-gpucluster-topologyPlace"
        data-stale={trouble !== null}
      >
        <Topology {...props} layout="wide" />
      </div>
    </>
  );
}
