/** Tells that a job of mine has ended while its cell is not in view. */
import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import {
  ITranslator,
  nullTranslator,
  TranslationBundle
} from '@jupyterlab/translation';

/* eslint-disable jupyter/prefer-lazy-imports -- small, and at work from the start */
import { JobView } from '../api/schemas';
import { isCellInView } from '../commands/cellInView';
import { Endings } from '../model/endings';
import { jobTitle, joined, reason, stateLabel } from '../model/words';
import { DEFAULTS } from '../settings';
import { CommandIDs, IGpuCluster, IGpuSettings, IWatch } from '../tokens';
/* eslint-enable jupyter/prefer-lazy-imports */

/** More at once are told in one sentence. */
const MOST_NAMED = 3;
const AUTO_CLOSE_MS = 10_000;

export const notify: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:notify',
  description: 'Tells that a job has ended while its cell is not in view.',
  autoStart: true,
  requires: [IGpuCluster],
  optional: [ITranslator, INotebookTracker, IGpuSettings],
  activate: (
    app: JupyterFrontEnd,
    cluster: IGpuCluster,
    translator: ITranslator | null,
    tracker: INotebookTracker | null,
    settings: IGpuSettings | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    const notifier = new Notifier(app, cluster, tracker, trans);
    const follow = () => {
      const { notifyOnEnd } = settings?.values ?? DEFAULTS;
      notifier.told = notifyOnEnd;
    };
    settings?.changed.connect(follow);
    follow();
  }
};

class Notifier {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly cluster: IGpuCluster,
    private readonly tracker: INotebookTracker | null,
    private readonly trans: TranslationBundle
  ) {
    cluster.changed.connect((_, change) => {
      if (this.watch && change.jobs.size > 0) {
        this.look();
      }
    });
  }

  /** What is told of. Nothing is asked for while that is nothing. */
  set told(told: 'failed' | 'all' | 'never') {
    this.isTold = job =>
      told === 'all' || (told === 'failed' && job.state === 'failed');
    if (told === 'never') {
      this.watch?.dispose();
      this.watch = null;
    } else if (!this.watch) {
      this.endings = new Endings();
      this.watch = this.cluster.watch({ topics: ['mine'] });
      this.look();
    }
  }

  private look(): void {
    const ended = this.endings
      .see(this.cluster.jobs)
      .filter(job => this.isTold(job) && !isCellInView(this.tracker, job));
    if (ended.length > MOST_NAMED) {
      this.tellAll(ended);
    } else {
      ended.forEach(job => this.tell(job));
    }
  }

  private tell(job: JobView): void {
    const { trans } = this;
    Notification.emit(endingText(job, trans), typeOf(job), {
      autoClose: AUTO_CLOSE_MS,
      actions: this.actions(job)
    });
  }

  /** A whole sweep that ends at once is one notification. */
  private tellAll(jobs: readonly JobView[]): void {
    const failed = jobs.filter(job => job.state === 'failed').length;
    Notification.emit(
      this.trans.__(
        '%1 jobs have ended, %2 of them failed',
        jobs.length,
        failed
      ),
      failed ? 'error' : 'success',
      {
        autoClose: AUTO_CLOSE_MS,
        actions: [
          {
            label: this.trans.__('Show'),
            callback: () => this.run(CommandIDs.showPanel, {})
          }
        ]
      }
    );
  }

  private actions(job: JobView): Notification.IAction[] {
    const { trans } = this;
    const args = { job: job.id };
    const actions = [
      {
        label: trans.__('Open log'),
        callback: () => this.run(CommandIDs.openLog, args)
      }
    ];
    if (job.notebook_path && job.cell_id) {
      actions.push({
        label: trans.__('Go to cell'),
        callback: () => this.run(CommandIDs.goToCell, args)
      });
    }
    return actions;
  }

  private run(command: string, args: { job?: string }): void {
    this.app.commands.execute(command, args).catch(error => {
      Notification.warning((error as Error).message);
    });
  }

  private watch: IWatch | null = null;
  private endings = new Endings();
  private isTold: (job: JobView) => boolean = () => false;
}

/** "job 12 train: failed, ended with exit code 3" */
export function endingText(job: JobView, trans: TranslationBundle): string {
  const state = stateLabel(job.state, trans);
  const why = reason(job);
  const how = why.startsWith(state) ? why : joined([state, why], ', ');
  return trans.__('%1: %2', jobTitle(job, trans), how);
}

function typeOf(job: JobView): Notification.TypeOptions {
  if (job.state === 'failed') {
    return 'error';
  }
  return job.state === 'succeeded' ? 'success' : 'info';
}
