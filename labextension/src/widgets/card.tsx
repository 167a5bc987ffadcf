/**
 * The card of a job in a notebook: how it stands, live while somebody looks at it.
 *
 * It shows the newer of what stands in the notebook and what the cluster tells, and it changes nothing in the notebook.
 * Beside it in other front ends: jupyter_gpucluster/templates/card.html.j2.
 */
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { JobView } from '../api/schemas';
import { IStreams } from '../api/streams';
import { ICard, newest, notice } from '../model/cardState';
import * as words from '../model/words';
import { trouble } from '../panels/connection';
import { useNowMs } from '../panels/hooks';
import { CommandIDs, IGpuCluster } from '../tokens';
import { Button } from './button';
import { CancelButton } from './cancelButton';
import { FactList, IFact } from './factList';
import { Figures, hasMetrics } from './figures';
import { useHistory, useInView, useJob, useTail } from './jobHooks';
import { OWN_KEYS_CLASS, useOwnKeys } from './ownKeys';
import { ProgressBar } from './progressBar';
import { SimulatedBadge } from './simulatedBadge';
import { stateClass, StateIcon } from './stateIcon';

/** What all cards of a page share. `streams` null: no end of a log is shown. */
export interface ICardContext {
  cluster: IGpuCluster;
  streams: IStreams | null;
  commands: CommandRegistry;
  trans: TranslationBundle;
}

export interface ICardProps {
  card: ICard;
  context: ICardContext;
}

const TICK_MS = 1000;

export function Card({ card, context }: ICardProps): JSX.Element {
  const { cluster, trans } = context;
  const section = React.useRef<HTMLElement>(null);
  const isInView = useInView(section);
  // Of a job that has ended nothing more is to be heard than whether the cluster has its step reports.
  const [isSettled, setIsSettled] = React.useState(false);
  const { job: told } = card;
  const isOpen = !words.isEnded(told.state) || hasMetrics(told.progress);
  const live = useJob(cluster, told.id, isInView && isOpen && !isSettled);
  const job = newest(card, live);
  const isEnded = words.isEnded(job.state);
  const isAnswered = live !== undefined || cluster.isGone(told.id);
  React.useEffect(
    () => setIsSettled(isEnded && isAnswered),
    [isEnded, isAnswered]
  );
  const isLooking = isInView && !isEnded;
  const nowMs = useNowMs(isLooking ? TICK_MS : null);
  const nowUs = (nowMs + cluster.clockOffsetMs) * words.US_PER_MS;
  const title = words.jobTitle(job, trans);
  return (
    <section
      ref={section}
      tabIndex={-1}
      className={`jp-gpucluster-card ${stateClass(job.state)}`}
      data-job-id={job.id}
      aria-label={trans.__('%1: %2', title, words.stateLabel(job.state, trans))}
    >
      <Spoken job={job} trans={trans} />
      <div className="jp-gpucluster-cardHead">
        <StateIcon state={job.state} trans={trans} isDecorative />
        <span className="jp-gpucluster-cardName">{title}</span>
        <Facts
          job={job}
          isSimulated={
            card.simulated || (!!live && !!cluster.status?.simulated)
          }
          trans={trans}
        />
        <Actions
          job={job}
          context={context}
          onGone={() => section.current?.focus()}
        />
      </div>
      <Connection
        job={job}
        cluster={cluster}
        nowMs={nowMs}
        isLooking={isLooking}
        trans={trans}
      />
      <Sentence
        job={job}
        cluster={cluster}
        isLooking={isLooking}
        trans={trans}
      />
      <ProgressBar
        percent={words.percent(job.progress)}
        state={job.state}
        label={title}
        text={words.steps(job.progress, trans)}
      />
      <Figures
        job={job}
        cluster={cluster}
        isWanted={isInView && live !== undefined}
        nowUs={nowUs}
        trans={trans}
      />
      <Remarks card={card} trans={trans} />
      {!card.fillsCell && (
        <LogTail job={job} context={context} isInView={isInView} />
      )}
    </section>
  );
}

/** Tells a screen reader each new state, once. What stands there first is no news. */
function Spoken(props: { job: JobView; trans: TranslationBundle }) {
  const { job, trans } = props;
  const [text, setText] = React.useState('');
  const told = React.useRef(job.state);
  React.useEffect(() => {
    if (told.current !== job.state) {
      told.current = job.state;
      const line = [
        words.jobTitle(job, trans),
        words.stateText(job, trans),
        words.isEnded(job.state) ? words.reason(job) : ''
      ];
      setText(words.joined(line, ', '));
    }
  }, [job, trans]);
  return (
    <div className="jp-gpucluster-spoken" role="status">
      {text}
    </div>
  );
}

function Facts(props: {
  job: JobView;
  isSimulated: boolean;
  trans: TranslationBundle;
}): JSX.Element {
  const { job, isSimulated, trans } = props;
  const facts: IFact[] = [
    [
      'state',
      <span title={times(job, trans)}>{words.stateText(job, trans)}</span>
    ],
    ['queue', job.queue && trans.__('queue %1', job.queue)],
    [
      'gpus',
      job.gpus && isSimulated ? (
        <>
          {words.gpus(job.gpus, trans)} <SimulatedBadge trans={trans} />
        </>
      ) : (
        words.gpus(job.gpus, trans)
      )
    ],
    ['tasks', job.tasks > 1 && trans._n('%1 task', '%1 tasks', job.tasks)],
    // Of a job that waits again it would be where it ran before.
    ['where', job.state !== 'pending' && words.where(job, trans)],
    ['attempt', words.attemptText(job.attempts_made, trans)],
    ['owner', job.owner && !job.mine && trans.__('of %1', job.owner_name)],
    ['share', shared(job.share, trans)]
  ];
  return <FactList className="jp-gpucluster-cardFacts" facts={facts} />;
}

/** When things happened, for a tooltip. */
function times(job: JobView, trans: TranslationBundle): string {
  const line = (text: string, timeUs: number | null) =>
    timeUs ? `${text} ${words.zonedTime(timeUs)}` : '';
  return words.joined(
    [
      line(trans.__('submitted'), job.submitted_us),
      line(trans.__('started'), job.started_us),
      line(trans.__('ended'), job.ended_us)
    ],
    '\n'
  );
}

function shared(share: string, trans: TranslationBundle): string {
  switch (share) {
    case 'queue':
      return trans.__('shared with its queue');
    case 'everyone':
      return trans.__('shared with everyone');
    default:
      return '';
  }
}

function Actions(props: {
  job: JobView;
  context: ICardContext;
  onGone: () => void;
}): JSX.Element {
  const { job, context, onGone } = props;
  const { cluster, commands, trans } = context;
  const args = { job: job.id };
  const hasLog = job.attempts_made > 0 && !cluster.isGone(job.id);
  const has = (id: string) =>
    commands.hasCommand(id) && commands.isEnabled(id, args);
  return (
    <span className="jp-gpucluster-cardActions">
      <CancelButton job={job} cluster={cluster} trans={trans} onGone={onGone} />
      {hasLog && has(CommandIDs.openLog) && (
        <Button
          aria-label={trans.__('Open log of job %1', job.number)}
          onClick={() => void commands.execute(CommandIDs.openLog, args)}
        >
          {trans.__('Open log')}
        </Button>
      )}
      {job.mine && job.can_control && has(CommandIDs.shareJob) && (
        <Button
          aria-label={trans.__('Share job %1', job.number)}
          onClick={() => void commands.execute(CommandIDs.shareJob, args)}
        >
          {trans.__('Share…')}
        </Button>
      )}
    </span>
  );
}

/** What stands between this card and the present: the cluster is away, or does not know the job. */
function Connection(props: {
  job: JobView;
  cluster: IGpuCluster;
  nowMs: number;
  isLooking: boolean;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, cluster, nowMs, isLooking, trans } = props;
  const sinceMs = useSinceMs(isLooking);
  if (!isLooking) {
    return null;
  }
  const found = trouble(cluster, sinceMs, nowMs);
  let text = '';
  if (found) {
    text = words.joined([
      words.lastUpdate(cluster.heardMs, nowMs, trans),
      found.reason ?? trans.__('the scheduler does not answer')
    ]);
  } else if (cluster.isGone(job.id)) {
    text = trans.__('this cluster does not know this job (any more)');
  }
  return text ? <div className="jp-gpucluster-cardLine">{text}</div> : null;
}

/** When `isLooking` became so. */
function useSinceMs(isLooking: boolean): number {
  const [sinceMs, setSinceMs] = React.useState(() => Date.now());
  React.useEffect(() => setSinceMs(Date.now()), [isLooking]);
  return sinceMs;
}

/** Why the job waits, stands still or has ended. */
function Sentence(props: {
  job: JobView;
  cluster: IGpuCluster;
  isLooking: boolean;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { job, cluster, isLooking, trans } = props;
  const history = useHistory(cluster, job, isLooking);
  const disturbance = notice(job, history, trans);
  const sentence =
    job.state === 'pending' ? words.waiting(job, trans) : words.reason(job);
  return (
    <>
      {disturbance && (
        <div className="jp-gpucluster-cardNotice">
          {asSentence(disturbance.what)} {disturbance.next}
        </div>
      )}
      {sentence && job.state !== 'stopping' && (
        <div className="jp-gpucluster-cardLine">{sentence}</div>
      )}
    </>
  );
}

function asSentence(text: string): string {
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** What the kernel had to say about the job. Warnings stand below the card where the job's outputs do. */
function Remarks(props: { card: ICard; trans: TranslationBundle }) {
  const { card, trans } = props;
  const lines = [
    card.summary,
    card.limits && trans.__('limits: %1', card.limits),
    ...card.hints,
    ...card.notes.map(note => trans.__('note: %1', note)),
    ...(card.fillsCell
      ? []
      : card.warnings.map(warning => trans.__('warning: %1', warning)))
  ].filter(Boolean);
  return (
    <>
      {lines.map((line, index) => (
        <div key={index} className="jp-gpucluster-cardLine jp-gpucluster-muted">
          {line}
        </div>
      ))}
    </>
  );
}

const PRINTS: ReadonlySet<string> = new Set([
  'starting',
  'running',
  'suspended',
  'stopping'
]);

/** The end of what the job prints, where nothing else shows it; after its end the last lines stay. */
function LogTail(props: {
  job: JobView;
  context: ICardContext;
  isInView: boolean;
}): JSX.Element | null {
  const { job, context, isInView } = props;
  const { streams, trans } = context;
  useOwnKeys();
  const [isOpen, setIsOpen] = React.useState(true);
  const lines = useTail(
    streams,
    job.id,
    job.can_read && PRINTS.has(job.state),
    isInView && isOpen
  );
  const most = React.useRef(0); // so that the card does not grow and shrink with each new line
  most.current = Math.max(most.current, lines.length);
  if (!lines.length) {
    return null;
  }
  return (
    <details
      className="jp-gpucluster-cardTail"
      open={isOpen}
      onToggle={event => setIsOpen(event.currentTarget.open)}
    >
      <summary className={OWN_KEYS_CLASS}>{trans.__('Output')}</summary>
      <pre>
        {Array.from({ length: most.current }, (_, index) => (
          <div key={index}>{lines[index] || ' '}</div>
        ))}
      </pre>
    </details>
  );
}
