/** The strip below the topology: all about what pointer or keyboard are on, else about the job that is shown up. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Highlight } from '../model/highlight';
import { IJobOnGpus, INodeTree } from '../model/topology';
import { IPlace } from '../model/topologyLayout';
import {
  gpuTitled,
  ILevels,
  ITitled,
  nodeTitled,
  pinnedText
} from '../model/topologyWords';
import { CommandIDs, IGpuCluster } from '../tokens';
import { SEPARATOR } from '../model/words';
import { Button } from '../widgets/button';

export interface IDetailProps {
  /** The node that is pointed at, and what of it. */
  tree: INodeTree | undefined;
  place: IPlace | null;
  /** The job that is shown up until something else is. */
  pinned: IJobOnGpus | undefined;
  highlight: Highlight;
  cluster: IGpuCluster;
  commands: JupyterFrontEnd['commands'];
  names: ILevels;
  trans: TranslationBundle;
}

/** Nothing while there is nothing to tell. */
export function TopologyDetail(props: IDetailProps): JSX.Element | null {
  const { tree, place, pinned } = props;
  if (tree && place) {
    const { title, rest } = pointed(props, tree, place);
    return (
      <div className="jp-gpucluster-topologyDetail">
        <b>{title}</b>
        {SEPARATOR}
        {rest}
      </div>
    );
  }
  return pinned ? (
    <div className="jp-gpucluster-topologyDetail">
      <Pinned {...props} pinned={pinned} />
    </div>
  ) : null;
}

function pointed(
  { cluster, names, trans }: IDetailProps,
  tree: INodeTree,
  place: IPlace
): ITitled {
  const box = tree.boxes[place.box];
  return box
    ? gpuTitled(tree, box, names, trans, cluster.job(box.gpu.job_id ?? ''))
    : nodeTitled(tree, names, trans);
}

function Pinned(props: IDetailProps & { pinned: IJobOnGpus }): JSX.Element {
  const { pinned, highlight, cluster, commands, trans } = props;
  const canOpen = canOpenLog(pinned.id, pinned.mine, cluster);
  return (
    <>
      <span>{pinnedText(pinned, cluster.job(pinned.id ?? ''), trans)}</span>
      <span className="jp-gpucluster-topologyDetailButtons">
        {canOpen && commands.hasCommand(CommandIDs.openLog) && (
          <Button
            onClick={() =>
              void commands.execute(CommandIDs.openLog, { job: pinned.id })
            }
          >
            {trans.__('Open log')}
          </Button>
        )}
        <Button onClick={() => highlight.pin(null)}>
          {trans.__('Show all alike')}
        </Button>
      </span>
    </>
  );
}

/** Whether the caller may read the log of a job, as far as the page knows. */
export function canOpenLog(
  id: string | null,
  mine: boolean,
  cluster: IGpuCluster
): id is string {
  return id !== null && (mine || cluster.job(id)?.can_read === true);
}
