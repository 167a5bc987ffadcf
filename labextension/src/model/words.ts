/**
 * Words and figures for people: durations, sizes, where a job runs, how it stands, how fast it goes.
 *
 * The same words as of the kernel's cards and of the command line: jupyter_gpucluster/describe.py, gpucluster/api/words.py.
 * Pure: what depends on the present moment is given it.
 */
import { TranslationBundle } from '@jupyterlab/translation';

import { HistoryView, JobView, Progress, StreamItem } from '../api/schemas';

/** Microseconds, as of the API, in a millisecond of the browser. */
export const US_PER_MS = 1000;
const US_PER_S = 1e6;

/** What sets parts of a line apart. */
export const SEPARATOR = ' · ';

const ENDED: ReadonlySet<string> = new Set([
  'succeeded',
  'failed',
  'cancelled'
]);

export function isEnded(state: string): boolean {
  return ENDED.has(state);
}

/** A state in words; a state of a later version is shown as it is called. */
export function stateLabel(state: string, trans: TranslationBundle): string {
  switch (state) {
    case 'pending':
      return trans.__('pending');
    case 'starting':
      return trans.__('starting');
    case 'running':
      return trans.__('running');
    case 'suspended':
      return trans.__('suspended');
    case 'stopping':
      return trans.__('stopping');
    case 'succeeded':
      return trans.__('succeeded');
    case 'failed':
      return trans.__('failed');
    case 'cancelled':
      return trans.__('cancelled');
    default:
      return state;
  }
}

// ---- amounts

/** For example "17 ms", "0.3 s", "12 s", "3 min 05 s", "2 h 07 min", "3 d 04 h". */
export function duration(seconds: number, trans: TranslationBundle): string {
  const s = Math.max(seconds, 0);
  if (s < 0.0995) {
    return trans.__('%1 ms', (s * 1000).toFixed(0));
  }
  if (s < 9.95) {
    return trans.__('%1 s', s.toFixed(1));
  }
  const whole = Math.round(s);
  if (whole < 60) {
    return trans.__('%1 s', whole);
  }
  if (whole < 3600) {
    return trans.__(
      '%1 min %2 s',
      Math.floor(whole / 60),
      twoDigits(whole % 60)
    );
  }
  const minutes = Math.floor(whole / 60);
  if (whole < 86400) {
    return trans.__(
      '%1 h %2 min',
      Math.floor(minutes / 60),
      twoDigits(minutes % 60)
    );
  }
  const hours = Math.floor(minutes / 60);
  return trans.__('%1 d %2 h', Math.floor(hours / 24), twoDigits(hours % 24));
}

function twoDigits(number: number): string {
  return String(number).padStart(2, '0');
}

/** Bytes in powers of 1024: "512 B", "1.5 MiB". */
export function size(bytes: number): string {
  let amount = bytes;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (amount < 1024) {
      return `${amount.toFixed(unit === 'B' ? 0 : 1)} ${unit}`;
    }
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

/** A number in at most so many significant digits, as Python's format "g" has it. */
function general(value: number, digits: number): string {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  }
  if (value === 0) {
    return '0';
  }
  const [mantissa, exponentText] = value.toExponential(digits - 1).split('e');
  const exponent = Number(exponentText);
  if (exponent >= -4 && exponent < digits) {
    return withoutTrailingZeros(value.toFixed(digits - 1 - exponent));
  }
  const sign = exponent < 0 ? '-' : '+';
  return `${withoutTrailingZeros(mantissa)}e${sign}${twoDigits(Math.abs(exponent))}`;
}

function withoutTrailingZeros(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** A metric in few characters. What is no number on the wire ("nan", "inf") stays as it is. */
export function figure(value: number | string): string {
  return typeof value === 'number' ? general(value, 4) : value;
}

/** A rate: more than three digits would only flicker. */
function rateFigure(rate: number): string {
  return rate < 999.5 ? general(rate, 3) : rate.toFixed(0);
}

/** A fact of a few words that is not to be broken over two lines. */
export function unbroken(fact: string): string {
  return fact.replace(/ /g, '\u00a0');
}

/** A count that may be a fraction (of a GPU): "2", "0.5". */
export function count(value: number): string {
  return general(value, 6);
}

export function gpus(amount: number, trans: TranslationBundle): string {
  return amount
    ? trans._n('%2 GPU', '%2 GPUs', amount, count(amount))
    : trans.__('no GPU');
}

/** "1st", "2nd", "3rd", "4th", "11th" … */
export function ordinal(number: number, trans: TranslationBundle): string {
  if ([11, 12, 13].includes(number % 100)) {
    return trans.__('%1th', number);
  }
  switch (number % 10) {
    case 1:
      return trans.__('%1st', number);
    case 2:
      return trans.__('%1nd', number);
    case 3:
      return trans.__('%1rd', number);
    default:
      return trans.__('%1th', number);
  }
}

export function joined(
  parts: Iterable<string | null | undefined>,
  separator: string = SEPARATOR
): string {
  return [...parts].filter(Boolean).join(separator);
}

// ---- times of day

/** A moment in local time for people who look today ("14:03:05") or later ("2026-03-01 14:03:05"). */
export function localTime(timeUs: number, nowUs: number): string {
  const time = new Date(timeUs / US_PER_MS);
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()]
    .map(twoDigits)
    .join(':');
  const isToday =
    time.toDateString() === new Date(nowUs / US_PER_MS).toDateString();
  return isToday ? clock : `${localDate(time)} ${clock}`;
}

function localDate(time: Date): string {
  return `${time.getFullYear()}-${twoDigits(time.getMonth() + 1)}-${twoDigits(time.getDate())}`;
}

/** Made once: a format takes longer to make than a row of a list to draw. */
const ZONED = new Intl.DateTimeFormat(undefined, {
  dateStyle: 'full',
  timeStyle: 'long'
});

/** The whole moment with its zone, for a tooltip. */
export function zonedTime(timeUs: number): string {
  return ZONED.format(timeUs / US_PER_MS);
}

/** How long ago the cluster was last heard: "last update 12 s ago"; "" when it never was. */
export function lastUpdate(
  heardMs: number | null,
  nowMs: number,
  trans: TranslationBundle
): string {
  if (heardMs === null) {
    return '';
  }
  // In whole seconds: it is counted up.
  const seconds = Math.max(Math.round((nowMs - heardMs) / 1000), 1);
  const age =
    seconds < 60 ? trans.__('%1 s', seconds) : duration(seconds, trans);
  return trans.__('last update %1 ago', age);
}

// ---- a job

/** Names of the nodes of the present attempt, each once, by rank. */
export function nodes(view: JobView): string[] {
  return [...new Set((view.attempt?.tasks ?? []).map(task => task.node))];
}

/**
 * For example "on node-0 (GPU 2, 3)", "on 4 nodes (node-0, node-1, …)"; "" before it has a place.
 *
 * A list's view of a large gang has only its first tasks: then there are at least so many nodes.
 */
export function where(view: JobView, trans: TranslationBundle): string {
  const names = nodes(view);
  const { tasks, tasks_left_out: leftOut } = view.attempt ?? {
    tasks: [],
    tasks_left_out: 0
  };
  if (!names.length) {
    return '';
  }
  if (names.length > 1) {
    const shown = names.slice(0, 3).join(', ');
    const named = names.length > 3 || leftOut ? `${shown}, …` : shown;
    return leftOut
      ? trans.__('on at least %1 nodes (%2)', names.length, named)
      : trans.__('on %1 nodes (%2)', names.length, named);
  }
  const indices = numbers(tasks.flatMap(task => task.gpu_indices));
  return indices
    ? trans.__('on %1 (GPU %2)', names[0], indices)
    : trans.__('on %1', names[0]);
}

/** For example "0, 2, 4–7": three or more in a row are drawn together. */
export function numbers(values: readonly number[]): string {
  const runs: number[][] = [];
  for (const value of [...new Set(values)].sort((one, other) => one - other)) {
    const run = runs[runs.length - 1];
    if (run && value === run[run.length - 1] + 1) {
      run.push(value);
    } else {
      runs.push([value]);
    }
  }
  return runs
    .map(run =>
      run.length > 2 ? `${run[0]}–${run[run.length - 1]}` : run.join(', ')
    )
    .join(', ');
}

type Timed = Pick<JobView, 'started_us' | 'ended_us'>;

/** Seconds since the job's first start, or that it took; null before. */
export function runtimeS(view: Timed, nowUs: number): number | null {
  return view.started_us === null
    ? null
    : Math.max((view.ended_us ?? nowUs) - view.started_us, 0) / US_PER_S;
}

/** A job that reports no progress says how long it has been running from here on. */
export const ELAPSED_FROM_S = 5;

/** For example "1 min 05 s so far" of a running job that reports no progress; else "". */
export function elapsed(
  view: JobView,
  nowUs: number,
  trans: TranslationBundle
): string {
  const tookS = runtimeS(view, nowUs);
  const isTold =
    view.state === 'running' &&
    view.progress === null &&
    tookS !== null &&
    tookS >= ELAPSED_FROM_S;
  return isTold ? trans.__('%1 so far', duration(tookS, trans)) : '';
}

/** A pending job's place: "2nd in queue vision". */
export function place(
  view: Pick<JobView, 'position' | 'queue'>,
  trans: TranslationBundle
): string {
  return view.position
    ? trans.__('%1 in queue %2', ordinal(view.position, trans), view.queue)
    : trans.__('in queue %1', view.queue);
}

/** Why a pending job waits, with its place: "2nd in queue vision: all 8 GPUs …". A reason that begins with it will do. */
export function waiting(view: JobView, trans: TranslationBundle): string {
  const why = view.waits || view.reason;
  return why?.startsWith(`Number ${view.position} in queue ${view.queue}`)
    ? why
    : joined([place(view, trans), why], ': ');
}

/** The time from submit to the first step report: "first step after 3.2 s"; "" before. */
export function firstFeedback(
  view: Pick<JobView, 'submitted_us' | 'first_feedback_us'>,
  trans: TranslationBundle
): string {
  return view.first_feedback_us === null
    ? ''
    : trans.__(
        'first step after %1',
        duration((view.first_feedback_us - view.submitted_us) / US_PER_S, trans)
      );
}

/** How fast a job goes; null is "not known". An `ITrack` is one. */
export interface IPace {
  readonly stepsPerS: number | null;
  readonly leftS: number | null;
}

/** "12.5 steps/s", of a slow one "4.0 s a step"; "" while unknown. */
export function rateText(pace: IPace, trans: TranslationBundle): string {
  const rate = pace.stepsPerS;
  if (!rate || rate <= 0) {
    return '';
  }
  return rate >= 1
    ? trans.__('%1 steps/s', rateFigure(rate))
    : trans.__('%1 a step', duration(1 / rate, trans));
}

/** "6.0 s left"; "" while unknown, and at the last step. */
export function leftText(pace: IPace, trans: TranslationBundle): string {
  return pace.leftS && pace.stepsPerS
    ? trans.__('%1 left', duration(pace.leftS, trans))
    : '';
}

/** For example "12.5 steps/s, 6.0 s left"; "" while unknown. */
export function paceText(pace: IPace, trans: TranslationBundle): string {
  return joined([rateText(pace, trans), leftText(pace, trans)], ', ');
}

export function metrics(progress: Progress | null): string[] {
  return Object.entries(progress?.metrics ?? {}).map(
    ([name, value]) => `${name} ${figure(value)}`
  );
}

/** For example "step 30/100". */
export function steps(
  progress: Progress | null,
  trans: TranslationBundle
): string {
  if (progress === null) {
    return '';
  }
  const label = progress.description || trans.__('step');
  return progress.total
    ? `${label} ${progress.step}/${progress.total}`
    : `${label} ${progress.step}`;
}

/** 0 to 100; null without a total. */
export function percent(progress: Progress | null): number | null {
  return progress?.total && progress.total > 0
    ? Math.min(Math.max((100 * progress.step) / progress.total, 0), 100)
    : null;
}

/** Why the job is in its state; "" when that says no more than the state does. */
export function reason(view: Pick<JobView, 'state' | 'reason'>): string {
  return view.state === 'succeeded' || view.reason === view.state
    ? ''
    : (view.reason ?? '');
}

/** "running", or of a job that has ended "failed after 12 s". */
export function stateText(
  view: Timed & Pick<JobView, 'state'>,
  trans: TranslationBundle
): string {
  const label = stateLabel(view.state, trans);
  const tookS = runtimeS(view, 0);
  return isEnded(view.state) && view.ended_us !== null && tookS !== null
    ? trans.__('%1 after %2', label, duration(tookS, trans))
    : label;
}

/** Where the job stands, without its name: state, place, progress, or how it ended. */
export function standing(
  view: JobView,
  nowUs: number,
  trans: TranslationBundle,
  pace?: IPace
): string {
  if (isEnded(view.state)) {
    return joined([stateText(view, trans), where(view, trans), reason(view)]);
  }
  const label = stateLabel(view.state, trans);
  if (view.state === 'pending') {
    return `${label}, ${waiting(view, trans)}`;
  }
  return joined([
    joined([label, where(view, trans)], ' '),
    ['stopping', 'suspended'].includes(view.state) ? view.reason : '',
    elapsed(view, nowUs, trans),
    steps(view.progress, trans),
    ...metrics(view.progress),
    pace && view.state === 'running' ? paceText(pace, trans) : ''
  ]);
}

/** "job 12 train" */
export function jobTitle(
  view: Pick<JobView, 'number' | 'name'>,
  trans: TranslationBundle
): string {
  return joined([trans.__('job %1', view.number), view.name], ' ');
}

/** "attempt 2"; of the first, "". */
export function attemptText(number: number, trans: TranslationBundle): string {
  return number > 1 ? trans.__('attempt %1', number) : '';
}

// ---- history and logs

/** The causes of a job's history in words; one of a later scheduler is shown as it is called, with blanks. */
export function causeText(cause: string, trans: TranslationBundle): string {
  switch (cause) {
    case 'submitted':
      return trans.__('submitted');
    case 'placed':
      return trans.__('has its place');
    case 'all_tasks_up':
      return trans.__('all tasks are up');
    case 'all_tasks_ended_well':
    case 'succeeded':
      return trans.__('all tasks ended well');
    case 'task_could_not_start':
    case 'start_failed':
      return trans.__('a task could not start');
    case 'task_failed':
    case 'failed':
      return trans.__('a task failed');
    case 'lost':
      return trans.__('a task was lost');
    case 'stop':
      return trans.__('is being stopped');
    case 'attempt_over':
      return trans.__('the attempt is over');
    case 'cancel':
      return trans.__('cancelled');
    case 'time_limit':
      return trans.__('reached its time limit');
    case 'evict':
      return trans.__('evicted');
    case 'drain':
      return trans.__('its node is being emptied');
    case 'migrate':
      return trans.__('moved to another place');
    case 'dependency_failed':
      return trans.__('a job that it waited for did not succeed');
    case 'suspend':
      return trans.__('suspended');
    case 'resume':
      return trans.__('resumed');
    default:
      return cause.replace(/_/g, ' ');
  }
}

/** Causes after which a detail tells the same, more exactly. */
const TOLD_BY_DETAIL: ReadonlySet<string> = new Set([
  'failed',
  'task_failed',
  'lost',
  'start_failed',
  'task_could_not_start',
  'dependency_failed'
]);

/** What a line of a job's history tells beside the state, and nothing twice: "", a cause, a detail, or both. */
export function happening(
  entry: HistoryView,
  trans: TranslationBundle
): string {
  const cause = causeText(entry.cause, trans);
  const detail = entry.detail ?? '';
  let told: string;
  if (!detail) {
    told = cause;
  } else if (
    cause === entry.to_state ||
    cause === '' ||
    TOLD_BY_DETAIL.has(entry.cause) ||
    detail.startsWith(cause)
  ) {
    told = detail;
  } else {
    told = `${cause}: ${detail}`;
  }
  return told === entry.to_state ? '' : told;
}

/** What a StreamItem of type "gone" tells, in the local date. */
export function goneText(
  item: Pick<StreamItem, 'attempt' | 'time_us' | 'reason'>,
  trans: TranslationBundle
): string {
  const attempt = item.attempt ?? 0;
  if (!item.time_us) {
    return trans.__('the log of attempt %1 is no longer there', attempt);
  }
  const day = localDate(new Date(item.time_us / US_PER_MS));
  return item.reason
    ? trans.__(
        'the log of attempt %1 was removed on %2 by %3',
        attempt,
        day,
        item.reason
      )
    : trans.__('the log of attempt %1 was removed on %2', attempt, day);
}
