/** Commands on jobs and cells: palette, context menus, cell toolbar. Where they stand is said in schema/plugin.json. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  InputDialog,
  Notification,
  showDialog
} from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { INotebookTracker } from '@jupyterlab/notebook';
import {
  ITranslator,
  nullTranslator,
  TranslationBundle
} from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

/* eslint-disable jupyter/prefer-lazy-imports -- small, and asked by every menu for what is enabled */
import { JobView } from '../api/schemas';
import { clickedJob, IQuestion, jobOf } from '../commands/chooseJob';
import { goToCell, INotebooks } from '../commands/goToCell';
import { activeCode, submitCell } from '../commands/submitCell';
import { gpuIcon } from '../icons';
import { isEnded, jobTitle } from '../model/words';
import { DEFAULTS } from '../settings';
import { CommandIDs, IGpuCluster, IGpuSettings } from '../tokens';
/* eslint-enable jupyter/prefer-lazy-imports */

type Share = 'owner' | 'queue' | 'everyone';

export const commands: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:commands',
  description:
    'Commands on jobs and cells: palette, context menus, cell toolbar.',
  autoStart: true,
  requires: [IGpuCluster],
  optional: [
    ITranslator,
    ICommandPalette,
    INotebookTracker,
    IDocumentManager,
    IGpuSettings
  ],
  activate: (
    app: JupyterFrontEnd,
    cluster: IGpuCluster,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null,
    documents: IDocumentManager | null,
    settings: IGpuSettings | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    addPanelCommand(app, trans);
    new JobCommands(app, cluster, trans, {
      tracker,
      documents,
      contents: app.serviceManager.contents,
      serverRoot: PageConfig.getOption('serverRoot'),
      reveal: id => app.shell.activateById(id),
      trans
    }).addAll();
    if (tracker) {
      addSubmitCommand(app, tracker, settings, trans);
    }
    const category = trans.__('GPU cluster');
    for (const command of IN_PALETTE) {
      if (app.commands.hasCommand(command)) {
        palette?.addItem({ command, category });
      }
    }
  }
};

const IN_PALETTE = [
  CommandIDs.showPanel,
  CommandIDs.submitCell,
  CommandIDs.cancelJob,
  CommandIDs.goToCell,
  CommandIDs.shareJob
];

/** The arguments of a command on a job, for whoever offers commands by their description. */
const JOB_ARGS: CommandRegistry.Description['args'] = {
  type: 'object',
  properties: {
    job: { type: 'string', description: 'The long id of the job.' }
  }
};

function addPanelCommand(app: JupyterFrontEnd, trans: TranslationBundle): void {
  app.commands.addCommand(CommandIDs.showPanel, {
    label: trans.__('Show the GPU Cluster'),
    caption: trans.__('Show queues, topology and jobs in the sidebar'),
    icon: args => (args.isPalette ? undefined : gpuIcon),
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => app.shell.activateById('jp-gpucluster-sidebar')
  });
}

/** Runs the active cell as a job. */
function addSubmitCommand(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  settings: IGpuSettings | null,
  trans: TranslationBundle
): void {
  const { commands } = app;
  const current = () => {
    const panel = tracker.currentWidget;
    return panel && panel.isVisible ? panel : null;
  };
  commands.addCommand(CommandIDs.submitCell, {
    label: trans.__('Run on the GPU Cluster'),
    caption: trans.__(
      'Run this cell as a job on the GPU cluster, with %%%%submit on top of it'
    ),
    icon: args => (args.isPalette ? undefined : gpuIcon),
    isEnabled: () => activeCode(current()) !== null,
    isVisible: args => !args.toolbar || activeCode(current()) !== null,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const panel = current();
      const { submitOptions } = settings?.values ?? DEFAULTS;
      try {
        await (panel &&
          submitCell({ panel, options: submitOptions, commands, trans }));
      } catch (error) {
        warn(error);
      }
    }
  });
  const refresh = () => commands.notifyCommandChanged(CommandIDs.submitCell);
  tracker.activeCellChanged.connect(refresh);
  tracker.currentChanged.connect(refresh);
}

/** Commands on one job: the one that is given, clicked on, or chosen. */
class JobCommands {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly cluster: IGpuCluster,
    private readonly trans: TranslationBundle,
    private readonly notebooks: INotebooks
  ) {}

  addAll(): void {
    const { trans } = this;
    this.add(CommandIDs.cancelJob, {
      label: [trans.__('Cancel Job…'), trans.__('Cancel a Job…')],
      caption: trans.__('End a job that has not ended'),
      isPossible: job => job.can_control && !isEnded(job.state),
      question: { title: trans.__('Cancel which job?') },
      execute: job => this.cancel(job)
    });
    this.add(CommandIDs.goToCell, {
      label: [trans.__('Go to Cell'), trans.__('Go to the Cell of a Job…')],
      caption: trans.__('Show the cell that submitted a job'),
      isPossible: job => Boolean(job.notebook_path && job.cell_id),
      question: {
        title: trans.__('Go to the cell of which job?'),
        includesEnded: true
      },
      execute: job => goToCell(job, this.notebooks)
    });
    this.add(CommandIDs.shareJob, {
      label: [trans.__('Share Job…'), trans.__('Share a Job…')],
      caption: trans.__('Let others see code, log and outputs of a job'),
      isPossible: job => job.can_control,
      question: { title: trans.__('Share which job?'), includesEnded: true },
      execute: job => this.share(job)
    });
  }

  private add(
    id: string,
    options: {
      /** Of one job, and of one that is yet to be chosen. */
      label: [string, string];
      caption: string;
      isPossible: (job: JobView) => boolean;
      question: IQuestion;
      execute: (job: JobView) => Promise<void>;
    }
  ): void {
    const { label, caption, isPossible, question, execute } = options;
    this.app.commands.addCommand(id, {
      label: args => (args.job || args.context ? label[0] : label[1]),
      caption,
      isEnabled: args => {
        const job = this.given(args);
        return job === undefined || isPossible(job);
      },
      describedBy: { args: JOB_ARGS },
      execute: async args => {
        const { app, cluster, trans } = this;
        const offer = { ...question, filter: isPossible };
        const chosen = await jobOf(app, cluster, args, trans, offer);
        if (!chosen) {
          return;
        }
        try {
          await execute(await this.view(chosen));
        } catch (error) {
          if (args.job) {
            throw error; // whoever named the job shows what went wrong
          }
          warn(error);
        }
      }
    });
  }

  /** The job that the arguments say, if it is known. */
  private given(args: ReadonlyPartialJSONObject): JobView | undefined {
    const id = args.context ? clickedJob(this.app) : args.job;
    return typeof id === 'string' ? this.cluster.job(id) : undefined;
  }

  /** The job's view, which the cluster may have to be asked for. */
  private view(id: string): Promise<JobView> {
    return knownJob(this.cluster, id, this.trans);
  }

  private async cancel(job: JobView): Promise<void> {
    const { trans } = this;
    const answer = await showDialog({
      title: trans.__('Cancel %1?', jobTitle(job, trans)),
      body: trans.__(
        'The job is told to stop. What it has written so far stays.'
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Keep it') }),
        Dialog.warnButton({ label: trans.__('Cancel the job') })
      ]
    });
    if (answer.button.accept) {
      await this.cluster.cancel(job.id);
    }
  }

  private async share(job: JobView): Promise<void> {
    const { trans } = this;
    const choices: [Share, string][] = [
      ['owner', trans.__('Only me')],
      ['queue', trans.__('All who may submit to queue %1', job.queue)],
      ['everyone', trans.__('Everyone')]
    ];
    const labels = choices.map(([, label]) => label);
    const answer = await InputDialog.getItem({
      title: trans.__(
        'Who sees code, log and outputs of %1?',
        jobTitle(job, trans)
      ),
      items: labels,
      current: Math.max(
        choices.findIndex(([share]) => share === job.share),
        0
      )
    });
    const at = labels.indexOf(answer.value ?? '');
    if (answer.button.accept && at >= 0) {
      await this.cluster.share(job.id, choices[at][0]);
    }
  }
}

/** Asks the cluster when it does not know the job yet. Raises an Error when it is not there, or the cluster is away. */
function knownJob(
  cluster: IGpuCluster,
  id: string,
  trans: TranslationBundle
): Promise<JobView> {
  const watch = cluster.watch({ jobs: [id] });
  const found = new Promise<JobView>((done, fail) => {
    const look = () => {
      const job = cluster.job(id);
      const { connection } = cluster;
      if (job) {
        done(job);
      } else if (cluster.isGone(id)) {
        fail(new Error(trans.__('There is no such job any more.')));
      } else if (connection.state === 'away') {
        fail(new Error(connection.reason));
      } else {
        return;
      }
      cluster.changed.disconnect(look);
    };
    cluster.changed.connect(look);
    look();
  });
  return found.finally(() => watch.dispose());
}

function warn(error: unknown): void {
  const { sentence, message } = error as { sentence?: string } & Error;
  Notification.warning(sentence ?? message, { autoClose: 8000 });
}
