/** Says calmly that what is shown is old, why, and that it comes back by itself; and what is shown before the first data. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { duration } from '../model/words';
import { IGpuCluster } from '../tokens';
import { Button } from '../widgets/button';
import { Shown, useCluster, useNowMs } from './hooks';

/** A live cluster is heard at least every 10 s; this long without a sound something is wrong, whatever the state says. */
export const SILENT_MS = 25_000;
const LOOK_MS = 5000;
const TICK_MS = 1000;

/** What is wrong with the connection. */
export interface ITrouble {
  reason: string | null;
  hint: string | null;
}

/** Null: all is well, or not known to be wrong yet. `sinceMs`: since when somebody has been looking. */
export function trouble(
  cluster: Pick<IGpuCluster, 'connection' | 'heardMs'>,
  sinceMs: number,
  nowMs: number
): ITrouble | null {
  const { connection, heardMs } = cluster;
  if (connection.state === 'away') {
    return { reason: connection.reason, hint: connection.hint };
  }
  const isSilent = nowMs - Math.max(heardMs ?? 0, sinceMs) > SILENT_MS;
  return isSilent ? { reason: null, hint: null } : null;
}

/** The trouble there is at present; ticks every second only while there is some. */
export function useTrouble(cluster: IGpuCluster): {
  trouble: ITrouble | null;
  nowMs: number;
} {
  useCluster(cluster, change => change.connection);
  const isShown = React.useContext(Shown);
  const [sinceMs, setSinceMs] = React.useState(() => Date.now());
  React.useEffect(() => setSinceMs(Date.now()), [isShown]);
  const [isTroubled, setIsTroubled] = React.useState(false);
  useNowMs(isTroubled ? TICK_MS : LOOK_MS);
  const nowMs = Date.now();
  const found = trouble(cluster, sinceMs, nowMs);
  const isFound = found !== null;
  React.useEffect(() => setIsTroubled(isFound), [isFound]);
  return { trouble: found, nowMs };
}

export interface IBannerProps {
  cluster: IGpuCluster;
  trouble: ITrouble;
  nowMs: number;
  trans: TranslationBundle;
}

export function Banner(props: IBannerProps): JSX.Element {
  const { cluster, nowMs, trans } = props;
  const { reason, hint } = props.trouble;
  const heard = cluster.heardMs;
  return (
    <div className="jp-gpucluster-banner">
      <p>
        <span>
          {heard === null
            ? trans.__('Nothing was heard from the cluster yet.')
            : trans.__('Last update %1 ago.', ageText(nowMs - heard, trans))}
        </span>{' '}
        {/* Told once, not every second. */}
        <span role="status">
          {asSentence(reason ?? trans.__('The scheduler does not answer'))}
          {hint ? ` ${hint}` : ''}
        </span>{' '}
        <span>{trans.__('Trying again …')}</span>
      </p>
      <Button onClick={() => cluster.retry()}>{trans.__('Retry')}</Button>
    </div>
  );
}

/** In whole seconds: it is counted up. */
function ageText(ageMs: number, trans: TranslationBundle): string {
  const seconds = Math.max(Math.round(ageMs / 1000), 1);
  return seconds < 60 ? trans.__('%1 s', seconds) : duration(seconds, trans);
}

/** Reasons of the API begin in lower case and have no full stop. */
export function asSentence(text: string): string {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}

/** In the place of what is not there yet. */
export function Waiting(props: {
  lines: number;
  trans: TranslationBundle;
}): JSX.Element {
  return (
    <div className="jp-gpucluster-skeleton" role="status">
      <span className="jp-gpucluster-spoken">
        {props.trans.__('Connecting to the cluster…')}
      </span>
      {Array.from({ length: props.lines }, (_, at) => (
        <span key={at} />
      ))}
    </div>
  );
}
