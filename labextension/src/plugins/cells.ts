/** Goes on filling a cell whose kernel no longer does: after a reload, a closed tab, a restarted kernel or server. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

/* eslint-disable jupyter/prefer-lazy-imports -- the first notebook may be there already */
import { GpuClient } from '../api/client';
import { NotebookKeeper } from '../notebook/keeper';
import { followNewJobs } from '../notebook/newJobs';
import { lastJobs } from '../notebook/recall';
import { Turns } from '../notebook/turns';
import { DEFAULTS } from '../settings';
import { IGpuCluster, IGpuSettings, IGpuStreams } from '../tokens';
/* eslint-enable jupyter/prefer-lazy-imports */

/** Of the 64 channels that a page may have. */
const FILLED_AT_A_TIME = 32;

export const cells: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:cells',
  description: 'Goes on filling a cell whose kernel no longer does.',
  autoStart: true,
  requires: [IGpuStreams, IGpuCluster],
  optional: [INotebookTracker, IGpuSettings],
  activate: (
    app: JupyterFrontEnd,
    streams: IGpuStreams,
    cluster: IGpuCluster,
    tracker: INotebookTracker | null,
    settings: IGpuSettings | null
  ) => {
    const { contents, serverSettings } = app.serviceManager;
    const client = new GpuClient(serverSettings);
    const values = () => settings?.values ?? DEFAULTS;
    const turns = new Turns(FILLED_AT_A_TIME);
    const keepers = new Map<NotebookPanel, NotebookKeeper>();

    const keep = (panel: NotebookPanel) => {
      if (!values().fillCells || keepers.has(panel)) {
        return;
      }
      const keeper = new NotebookKeeper({
        panel,
        streams,
        turns,
        contents,
        findJobs: (ids, isHere, isOver) =>
          lastJobs(client, ids, isHere, isOver),
        followNewJobs: onNew => followNewJobs(cluster, onNew),
        savesFilled: () => values().saveFilledCells
      });
      keepers.set(panel, keeper);
      panel.disposed.connect(() => keepers.delete(panel));
    };

    const onSettings = () => {
      if (values().fillCells) {
        tracker?.forEach(keep);
      } else {
        keepers.forEach(keeper => keeper.dispose());
        keepers.clear();
      }
    };

    tracker?.widgetAdded.connect((_, panel) => keep(panel));
    settings?.changed.connect(onSettings);
    tracker?.forEach(keep);
  }
};
