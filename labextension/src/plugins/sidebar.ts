/** The sidebar. */
import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';

import { gpuIcon } from '../icons';
import { IGpuCluster, IGpuSettings } from '../tokens';

export const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:sidebar',
  description: 'Shows the GPU cluster in the left sidebar.',
  autoStart: true,
  requires: [IGpuCluster, IGpuSettings],
  optional: [ITranslator, ILayoutRestorer, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    cluster: IGpuCluster,
    settings: IGpuSettings,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    stateDB: IStateDB | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    const { commands } = app;
    const place = new Place(async () => {
      const { openSidebar } = await import('../panels/sidebar');
      const { jobsShown } = settings.values;
      return openSidebar({ cluster, commands, stateDB, jobsShown, trans });
    });
    place.id = 'jp-gpucluster-sidebar';
    place.title.icon = gpuIcon;
    place.title.caption = trans.__('GPU cluster');
    place.node.setAttribute('role', 'region');
    place.node.setAttribute('aria-label', trans.__('GPU cluster'));
    restorer?.add(place, place.id);
    app.shell.add(place, 'left', { rank: 650 });
  }
};

/** Where the sidebar comes when it is looked at for the first time: until then its code is not even loaded. */
class Place extends Panel {
  constructor(private readonly make: () => Promise<Widget>) {
    super();
    this.addClass('jp-gpucluster-place');
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.fill();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.fill();
  }

  private fill(): void {
    if (!this.isVisible || this.isFilled) {
      return;
    }
    this.isFilled = true;
    this.make().then(
      widget => this.addWidget(widget),
      error => {
        this.isFilled = false; // tried again when it is shown again
        console.error(error);
      }
    );
  }

  private isFilled = false;
}
