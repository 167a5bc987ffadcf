/** The head of a log: the job, how it stands, what is wrong, and what stands above the text that is shown. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { ApiError } from '../api/errors';
import { JobView } from '../api/schemas';
import { asSentence } from '../panels/connection';
import { useNowMs, useSignal } from '../panels/hooks';
import * as words from '../model/words';
import { Button } from './button';
import type { LogPanel } from './logPanel';
import { SCROLLBACK } from './logTerminal';
import { ProgressBar } from './progressBar';
import { SimulatedBadge } from './simulatedBadge';
import { StateIcon } from './stateIcon';

const TICK_MS = 1000;

export function LogHeader({ panel }: { panel: LogPanel }): JSX.Element {
  useSignal(panel.changed);
  const { job, trans, cluster, feed, problem } = panel;
  return (
    <div className="jp-gpucluster-logHeader">
      {job && (
        <Standing
          job={job}
          pace={cluster.track(job.id)}
          isSimulated={cluster.status?.simulated ?? false}
          offsetMs={cluster.clockOffsetMs}
          trans={trans}
        />
      )}
      {feed.state === 'failed' && (
        <p role="alert" className="jp-gpucluster-logProblem">
          {feed.error && errorText(feed.error)}
        </p>
      )}
      {problem && (
        <p role="alert" className="jp-gpucluster-logProblem">
          {problem}
        </p>
      )}
      {feed.state !== 'failed' && feed.error && <Away panel={panel} />}
      <Above panel={panel} />
    </div>
  );
}

function Standing(props: {
  job: JobView;
  pace: words.IPace;
  isSimulated: boolean;
  offsetMs: number;
  trans: TranslationBundle;
}): JSX.Element {
  const { job, pace, isSimulated, offsetMs, trans } = props;
  const isOver = words.isEnded(job.state);
  const nowMs = useNowMs(isOver ? null : TICK_MS) + offsetMs;
  const title = words.jobTitle(job, trans);
  return (
    <>
      <p className="jp-gpucluster-logStanding">
        <StateIcon state={job.state} trans={trans} isDecorative />{' '}
        <strong>{title}</strong>{' '}
        {!job.mine && (
          <span>{trans.__('of %1', job.owner_name || job.owner)} </span>
        )}
        {/* Told by a change of state, not by each step. */}
        <span role="status" className="jp-gpucluster-spoken">
          {words.stateLabel(job.state, trans)}
        </span>
        <span title={words.zonedTime(job.submitted_us)}>
          {words.joined([
            words.attemptText(job.attempt?.number ?? 0, trans),
            words.standing(job, nowMs * words.US_PER_MS, trans, pace)
          ])}
        </span>{' '}
        {isSimulated && <SimulatedBadge trans={trans} />}
      </p>
      {!isOver && (
        <ProgressBar
          percent={words.percent(job.progress)}
          state={job.state}
          label={title}
          text={words.steps(job.progress, trans)}
        />
      )}
    </>
  );
}

function Away({ panel }: { panel: LogPanel }): JSX.Element {
  const { feed, cluster, trans } = panel;
  const nowMs = useNowMs(TICK_MS);
  const heard = words.lastUpdate(feed.heardMs, nowMs, trans);
  return (
    <p className="jp-gpucluster-logAway">
      <span>{heard && asSentence(heard)}</span>{' '}
      <span role="status">{feed.error && errorText(feed.error)}</span>{' '}
      <Button onClick={() => cluster.retry()}>{trans.__('Retry')}</Button>
    </p>
  );
}

/** Reason and hint of the API, as sentences. */
function errorText({ body }: ApiError): string {
  const told = [body.reason, body.hint ?? ''].filter(part => part !== '');
  return told.map(asSentence).join(' ');
}

/** What stands above the first line, and how to get at it. */
function Above({ panel }: { panel: LogPanel }): JSX.Element | null {
  const { trans, terminal, download, job } = panel;
  const above = aboveText(panel);
  if (download) {
    return (
      <p className="jp-gpucluster-logAbove">
        <span role="status">
          {trans.__('Downloading … %1', words.size(download.bytes))}
        </span>{' '}
        <Button onClick={() => download.stop()}>{trans.__('Stop')}</Button>
      </p>
    );
  }
  if (!above || !terminal) {
    return null;
  }
  return (
    <p className="jp-gpucluster-logAbove">
      <span>{above}</span>{' '}
      <Button onClick={() => panel.showFrom('start')}>
        {trans.__('Load from the beginning')}
      </Button>{' '}
      {job?.can_read !== false && (
        <Button onClick={() => void panel.downloadWhole()}>
          {trans.__('Download whole log')}
        </Button>
      )}
    </p>
  );
}

/** "" when the log is shown from its first line on. */
export function aboveText(panel: LogPanel): string {
  const { feed, terminal, trans, log } = panel;
  const { first } = feed.text;
  if (!first) {
    return '';
  }
  if (terminal?.isFull) {
    return trans.__(
      'Earlier lines are not shown: this page keeps %1.',
      SCROLLBACK.toLocaleString()
    );
  }
  const parts: string[] = [];
  if (first.records > 0) {
    parts.push(
      trans._n(
        '%2 earlier record is not shown (%3)',
        '%2 earlier records are not shown (%3)',
        first.records,
        first.records.toLocaleString(),
        words.size(first.bytes)
      )
    );
  }
  const earlier = log.attempt === null ? first.attempt - 1 : 0;
  if (earlier > 0) {
    parts.push(
      trans._n(
        '%1 earlier attempt is not shown',
        '%1 earlier attempts are not shown',
        earlier
      )
    );
  }
  return words.joined(parts);
}
