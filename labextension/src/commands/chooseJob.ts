/** Which job a command is about: the one it was given, that of the clicked element, or one that the user chooses. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { JobView } from '../api/schemas';
import { isEnded, jobTitle, joined, stateLabel } from '../model/words';
import { IGpuCluster } from '../tokens';

/** More ended jobs than these are not offered. */
const MOST_ENDED = 30;

export interface IQuestion {
  title: string;
  /** Offer jobs that have ended too. */
  includesEnded?: boolean;
  /** Offer these alone. */
  filter?: (job: JobView) => boolean;
}

/** The long id; null when there is none, or when the user does not want to. */
export async function jobOf(
  app: Pick<JupyterFrontEnd, 'contextMenuHitTest'>,
  cluster: IGpuCluster,
  args: ReadonlyPartialJSONObject,
  trans: TranslationBundle,
  question: IQuestion
): Promise<string | null> {
  if (typeof args.job === 'string' && args.job) {
    return args.job;
  }
  const clicked = args.context ? clickedJob(app) : null;
  return clicked ?? chooseJob(cluster, trans, question);
}

/** The job of the element that the context menu was opened on. */
export function clickedJob(
  app: Pick<JupyterFrontEnd, 'contextMenuHitTest'>
): string | null {
  const found = app.contextMenuHitTest(node => Boolean(node.dataset?.jobId));
  return found?.dataset.jobId ?? null;
}

async function chooseJob(
  cluster: IGpuCluster,
  trans: TranslationBundle,
  question: IQuestion
): Promise<string | null> {
  const watch = cluster.watch({ topics: ['mine'] });
  try {
    const isKnown = await known(cluster);
    if (!isKnown) {
      await tell(
        trans.__('The jobs are not known'),
        awayReason(cluster),
        trans
      );
      return null;
    }
    const jobs = offered(cluster.jobs, question);
    if (jobs.length === 0) {
      await tell(
        question.title,
        trans.__('There is no such job of yours.'),
        trans
      );
      return null;
    }
    return await ask(jobs, trans, question.title);
  } finally {
    watch.dispose();
  }
}

/** Mine: those that have not ended, newest first, then the others. */
export function offered(
  jobs: readonly JobView[],
  question: IQuestion
): JobView[] {
  const mine = jobs
    .filter(job => job.mine && (question.filter?.(job) ?? true))
    .sort((one, other) => other.number - one.number);
  const ended = mine.filter(job => isEnded(job.state)).slice(0, MOST_ENDED);
  return [
    ...mine.filter(job => !isEnded(job.state)),
    ...(question.includesEnded ? ended : [])
  ];
}

async function ask(
  jobs: readonly JobView[],
  trans: TranslationBundle,
  title: string
): Promise<string | null> {
  const labels = jobs.map(job =>
    joined([jobTitle(job, trans), stateLabel(job.state, trans)])
  );
  const answer = await InputDialog.getItem({
    title,
    items: labels,
    current: 0
  });
  const at = labels.indexOf(answer.value ?? '');
  return answer.button.accept && at >= 0 ? jobs[at].id : null;
}

/** Whether the jobs came; not so when the cluster is away. */
function known(cluster: IGpuCluster): Promise<boolean> {
  return new Promise(done => {
    const look = () => {
      const isAway = cluster.connection.state === 'away';
      if (cluster.knows('mine') || isAway) {
        cluster.changed.disconnect(look);
        done(!isAway || cluster.knows('mine'));
      }
    };
    cluster.changed.connect(look);
    look();
  });
}

function awayReason(cluster: IGpuCluster): string {
  const { connection } = cluster;
  return connection.state === 'away'
    ? joined([connection.reason, connection.hint], ' ')
    : '';
}

async function tell(
  title: string,
  body: string,
  trans: TranslationBundle
): Promise<void> {
  await showDialog({
    title,
    body,
    buttons: [Dialog.okButton({ label: trans.__('Ok') })]
  });
}
