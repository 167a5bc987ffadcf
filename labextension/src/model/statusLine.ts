/** The cluster in the few words that fit into the status bar. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { LiveStatus } from '../api/schemas';
import { IGpuCluster } from '../tokens';
import { zonedTime } from './words';

export interface IStatusLine {
  /** "GPU 12/32"; null = nothing is known yet. */
  gpus: string | null;
  /** "2 running", "1 waiting": mine. */
  jobs: string[];
  simulated: boolean;
  /** Not heard for longer than there can be silence: what is shown is old. */
  isAway: boolean;
  /** All there is to tell, for the tooltip. */
  title: string;
}

export function statusLine(
  cluster: Pick<IGpuCluster, 'connection' | 'heardMs' | 'status'>,
  trans: TranslationBundle
): IStatusLine {
  const { connection, status } = cluster;
  const isAway = connection.state === 'away';
  return {
    gpus: status ? trans.__('GPU %1/%2', status.gpus_used, status.gpus) : null,
    jobs: status ? myJobs(status, trans) : [],
    simulated: status?.simulated ?? false,
    isAway,
    title: [
      ...(isAway ? awayLines(cluster, trans) : []),
      ...(status ? statusLines(status, trans) : []),
      trans.__('Click to see queues, topology and jobs.')
    ].join('\n')
  };
}

function myJobs(status: LiveStatus, trans: TranslationBundle): string[] {
  return [
    status.my_running ? trans.__('%1 running', status.my_running) : '',
    status.my_waiting ? trans.__('%1 waiting', status.my_waiting) : ''
  ].filter(Boolean);
}

function awayLines(
  { connection, heardMs }: Pick<IGpuCluster, 'connection' | 'heardMs'>,
  trans: TranslationBundle
): string[] {
  const why = connection.state === 'away' ? connection : null;
  return [
    [why?.reason, why?.hint].map(asSentence).filter(Boolean).join(' '),
    heardMs === null
      ? trans.__('Nothing was heard from the cluster yet.')
      : trans.__('What is shown is of %1.', zonedTime(heardMs * 1000))
  ];
}

/** Reasons of the API begin in lower case and have no full stop. */
function asSentence(text: string | null | undefined): string {
  if (!text) {
    return '';
  }
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}

function statusLines(status: LiveStatus, trans: TranslationBundle): string[] {
  const sick = status.gpus - status.gpus_healthy;
  return [
    trans.__(
      '%1: %2 of %3 in use on %4',
      status.cluster,
      status.gpus_used,
      trans._n('%1 GPU', '%1 GPUs', status.gpus),
      trans._n('%1 node', '%1 nodes', status.nodes)
    ),
    status.simulated ? trans.__('The GPUs are simulated.') : '',
    sick > 0 ? trans._n('%1 GPU not healthy', '%1 GPUs not healthy', sick) : '',
    trans.__('Jobs: %1 running, %2 waiting', status.running, status.waiting),
    trans.__(
      'Mine: %1 running, %2 waiting',
      status.my_running,
      status.my_waiting
    ),
    ...status.notes
  ].filter(Boolean);
}
