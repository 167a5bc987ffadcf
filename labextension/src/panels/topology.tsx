/** The topology: racks, nodes, sockets, switches and GPUs as nested boxes; who holds what, and how busy it is. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IGpuCluster } from '../tokens';

export interface ITopologyProps {
  cluster: IGpuCluster;
  trans: TranslationBundle;
  commands: JupyterFrontEnd['commands'];
  layout: 'narrow' | 'wide';
}

/** Follows the topic `nodes` while it is mounted. */
export function Topology(props: ITopologyProps): JSX.Element {
  return <div className="jp-gpucluster-topology" />;
}
