/** One job of the list: how it stands in few lines, what can be done with it, and its details when they are asked for. */
import { TranslationBundle } from '@jupyterlab/translation';
import {
  caretDownIcon,
  caretUpIcon,
  closeIcon,
  LabIcon,
  notebookIcon,
  textEditorIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { JobView } from '../api/schemas';
import { Scope } from '../model/jobList';
import {
  elapsed,
  figure,
  firstFeedback,
  gpus,
  isEnded,
  joined,
  jobTitle,
  leftText,
  localTime,
  metrics,
  percent,
  rateText,
  reason,
  SEPARATOR,
  stateLabel,
  stateText,
  steps,
  unbroken,
  US_PER_MS,
  waiting,
  where,
  zonedTime
} from '../model/words';
import { ITrack } from '../tokens';
import { Button } from '../widgets/button';
import { ProgressBar } from '../widgets/progressBar';
import { Sparkline } from '../widgets/sparkline';
import { StateIcon } from '../widgets/stateIcon';
import { useNowMs } from './hooks';
import { IJobActions } from './jobActions';

const TICK_MS = 1000;

export interface IJobRowProps {
  job: JobView;
  track: ITrack;
  /** Of the track: another object whenever it has changed. */
  reports: ITrack['reports'];
  scope: Scope;
  /** The row that Tab leads to. */
  isActive: boolean;
  /** As shown: one that was just cancelled is stopping. */
  state: string;
  isAsking: boolean;
  error: string | undefined;
  isExpanded: boolean;
  actions: IJobActions;
  clockOffsetMs: number;
  trans: TranslationBundle;
}

/** The cells of the row; the row itself, with its place in the list, is of the list. */
export const JobRow = React.memo(function JobRow(
  props: IJobRowProps
): JSX.Element {
  const { job, state, isAsking, error, isExpanded, actions, trans } = props;
  return (
    <div role="gridcell" className="jp-gpucluster-jobCell">
      {isAsking && !isEnded(job.state) ? (
        <Question job={job} actions={actions} trans={trans} />
      ) : (
        <div className="jp-gpucluster-jobHead">
          <StateIcon state={state} trans={trans} />
          <span className="jp-gpucluster-number">{job.number}</span>
          <span className="jp-gpucluster-name" title={job.name}>
            {job.name}
          </span>
          <span className="jp-gpucluster-gpus">{gpus(job.gpus, trans)}</span>
          <Actions {...props} />
        </div>
      )}
      <Standing {...props} />
      {error !== undefined && (
        <div className="jp-gpucluster-jobError">
          <span role="alert">{error}</span>
          <IconButton
            icon={closeIcon}
            label={trans.__('Hide this error')}
            isReachable
            onClick={() => actions.dismiss(job.id)}
          />
        </div>
      )}
      {isExpanded && <Details {...props} />}
    </div>
  );
});

/** The lines below the name. */
function Standing(props: IJobRowProps): JSX.Element {
  const { job, state, scope, trans } = props;
  const owner = scope === 'all' ? job.owner_name || job.owner : null;
  if (isEnded(state)) {
    return <Ended {...props} owner={owner} />;
  }
  if (state === 'pending') {
    return (
      <>
        <Line parts={[owner]} />
        <Clamped text={waiting(job, trans)} isWhole={props.isExpanded} />
      </>
    );
  }
  return (
    <>
      <Line
        parts={[
          state === 'running' ? null : stateLabel(state, trans),
          owner,
          job.queue
        ]}
      />
      <Running {...props} />
    </>
  );
}

function Running(props: IJobRowProps): JSX.Element {
  const { job, state, track, trans, clockOffsetMs } = props;
  const isCounting = job.progress === null && state === 'running';
  const nowMs = useNowMs(isCounting ? TICK_MS : null);
  const share = percent(job.progress);
  const far = [
    steps(job.progress, trans),
    state === 'running' ? rateText(track, trans) : '',
    state === 'running' ? leftText(track, trans) : '',
    elapsed(job, (nowMs + clockOffsetMs) * US_PER_MS, trans)
  ];
  return (
    <>
      {share !== null && (
        <div className="jp-gpucluster-jobProgress">
          <ProgressBar
            percent={share}
            state={state}
            label={jobTitle(job, trans)}
            text={joined(far)}
          />
          <span>{trans.__('%1%', Math.floor(share))}</span>
        </div>
      )}
      <div className="jp-gpucluster-jobFacts">
        <Line parts={far.map(unbroken)} />
        <Metric {...props} />
      </div>
      {state !== 'running' && (
        <Clamped text={reason(job)} isWhole={props.isExpanded} />
      )}
    </>
  );
}

/** The first metric: its value and its course. */
function Metric(props: IJobRowProps): JSX.Element | null {
  const { job, track, trans } = props;
  const [name] = track.metrics.length
    ? track.metrics
    : Object.keys(job.progress?.metrics ?? {});
  const value = job.progress?.metrics[name];
  if (name === undefined || value === undefined) {
    return null;
  }
  return (
    <div className="jp-gpucluster-metric">
      <span>
        {name} {figure(value)}
      </span>
      <Sparkline points={track.points(name)} label={name} trans={trans} />
    </div>
  );
}

function Ended(props: IJobRowProps & { owner: string | null }): JSX.Element {
  const { job, owner, isExpanded, trans } = props;
  const nowUs = Date.now() * US_PER_MS;
  return (
    <>
      <div className="jp-gpucluster-line">
        {stateText(job, trans)}
        {job.ended_us !== null && (
          <>
            {SEPARATOR}
            <time title={zonedTime(job.ended_us)}>
              {localTime(job.ended_us, nowUs)}
            </time>
          </>
        )}
        {SEPARATOR}
        {joined([owner, job.queue, metrics(job.progress)[0]])}
      </div>
      <Clamped text={reason(job)} isWhole={isExpanded} />
    </>
  );
}

function Line({ parts }: { parts: (string | null)[] }): JSX.Element | null {
  const text = joined(parts);
  return text ? <div className="jp-gpucluster-line">{text}</div> : null;
}

/** Two lines of it; all of it on hover, and when the details are open. */
function Clamped(props: {
  text: string;
  isWhole: boolean;
}): JSX.Element | null {
  return props.text ? (
    <div
      className="jp-gpucluster-clamped"
      data-whole={props.isWhole}
      title={props.isWhole ? undefined : props.text}
    >
      {props.text}
    </div>
  ) : null;
}

function Actions(props: IJobRowProps): JSX.Element {
  const { job, state, isActive, isExpanded, actions, trans } = props;
  const hasCell = job.notebook_path !== null && job.cell_id !== null;
  return (
    <span className="jp-gpucluster-actions">
      <IconButton
        icon={isExpanded ? caretUpIcon : caretDownIcon}
        label={trans.__('Details of job %1', job.number)}
        isExpanded={isExpanded}
        isReachable={isActive}
        onClick={() => actions.toggleDetails(job.id)}
      />
      {hasCell && (
        <IconButton
          icon={notebookIcon}
          label={trans.__('Go to the cell of job %1', job.number)}
          isReachable={isActive}
          onClick={() => actions.goToCell(job.id)}
        />
      )}
      <IconButton
        icon={textEditorIcon}
        label={trans.__('Log of job %1', job.number)}
        whyNot={whyNotRead(job, trans)}
        isReachable={isActive}
        onClick={() => openLog(job, actions, trans)}
      />
      {!isEnded(state) && (
        <IconButton
          icon={closeIcon}
          label={trans.__('Cancel job %1', job.number)}
          whyNot={whyNotCancel(job, state, trans)}
          isReachable={isActive}
          onClick={() => askToCancel(job, state, actions, trans)}
        />
      )}
    </span>
  );
}

/** Ask whether the job is to be cancelled, or say why it cannot be. `state`: as shown. */
export function askToCancel(
  job: JobView,
  state: string,
  actions: IJobActions,
  trans: TranslationBundle
): void {
  const why = whyNotCancel(job, state, trans);
  if (why === undefined) {
    actions.ask(job.id);
  } else {
    actions.refuse(job.id, why);
  }
}

/** Undefined when it can be cancelled. */
function whyNotCancel(
  job: JobView,
  state: string,
  trans: TranslationBundle
): string | undefined {
  if (isEnded(state)) {
    return trans.__('The job has ended.');
  }
  if (!job.can_control) {
    return trans.__('Only its owner and administrators may cancel it.');
  }
  return state === 'stopping' ? trans.__('It is being stopped.') : undefined;
}

/** Open its log, or say why not. */
export function openLog(
  job: JobView,
  actions: IJobActions,
  trans: TranslationBundle
): void {
  const why = whyNotRead(job, trans);
  if (why === undefined) {
    actions.openLog(job.id);
  } else {
    actions.refuse(job.id, why);
  }
}

function whyNotRead(
  job: JobView,
  trans: TranslationBundle
): string | undefined {
  return job.can_read
    ? undefined
    : trans.__('Its owner does not share its log with you.');
}

interface IIconButtonProps {
  icon: LabIcon;
  label: string;
  /** Why it can do no more at present than to say so. */
  whyNot?: string;
  isExpanded?: boolean;
  /** Whether Tab leads to it. */
  isReachable: boolean;
  onClick: () => void;
}

function IconButton(props: IIconButtonProps): JSX.Element {
  const { icon: Icon, label, whyNot, isExpanded, isReachable, onClick } = props;
  const caption = joined([label, whyNot], '. ');
  const isToggle = isExpanded !== undefined;
  return (
    <button
      type="button"
      className="jp-gpucluster-iconButton"
      aria-label={caption}
      title={caption}
      aria-disabled={whyNot !== undefined || undefined}
      aria-expanded={isExpanded}
      tabIndex={isReachable ? 0 : -1}
      onClick={event => {
        event.stopPropagation();
        if (isToggle || isFirst(event)) {
          onClick();
        }
      }}
    >
      <Icon.react tag="span" />
    </button>
  );
}

/** Not the second click of a double click: the first may have put another button under the pointer. */
function isFirst(event: React.MouseEvent): boolean {
  return event.detail <= 1; // 0 of a key
}

/** In the place of the name: nothing moves, and no dialog gets in the way. */
function Question(props: {
  job: JobView;
  actions: IJobActions;
  trans: TranslationBundle;
}): JSX.Element {
  const { job, actions, trans } = props;
  const no = React.useRef<HTMLButtonElement>(null);
  // A key that is held down, or pressed once more, must not cancel a job.
  React.useEffect(() => no.current?.focus(), []);
  const text = trans.__('Cancel job %1?', job.number);
  return (
    <div
      role="group"
      aria-label={text}
      className="jp-gpucluster-jobHead jp-gpucluster-jobQuestion"
    >
      <span className="jp-gpucluster-name">{text}</span>
      <Button
        className="jp-gpucluster-mod-warn"
        onClick={event => isFirst(event) && actions.cancel(job.id)}
      >
        {trans.__('Yes')}
      </Button>
      <Button ref={no} onClick={event => isFirst(event) && actions.dontAsk()}>
        {trans.__('No')}
      </Button>
    </div>
  );
}

function Details(props: IJobRowProps): JSX.Element {
  const { job, trans } = props;
  const nowUs = Date.now() * US_PER_MS;
  const moment = (us: number) => (
    <time title={zonedTime(us)}>{localTime(us, nowUs)}</time>
  );
  const facts: [string, React.ReactNode][] = [
    [trans.__('owner'), job.owner_name || job.owner],
    [trans.__('queue'), job.queue],
    [trans.__('submitted'), moment(job.submitted_us)],
    [trans.__('started'), job.started_us && moment(job.started_us)],
    [
      trans.__('runs'),
      joined([
        where(job, trans),
        job.tasks > 1
          ? trans._n('%2 task', '%2 tasks', job.tasks, job.tasks)
          : null
      ])
    ],
    [trans.__('metrics'), joined(metrics(job.progress))],
    [trans.__('feedback'), firstFeedback(job, trans)],
    [trans.__('tier'), String(job.tier)],
    [trans.__('attempts'), job.attempts_made > 1 && String(job.attempts_made)],
    [trans.__('notebook'), job.notebook_path]
  ];
  return (
    <dl className="jp-gpucluster-details">
      {facts
        .filter(([, value]) => value)
        .map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </React.Fragment>
        ))}
    </dl>
  );
}
