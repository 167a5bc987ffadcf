/**
 * What a card shows: the state that stands in the notebook and the one that the cluster tells, the newer of the two.
 *
 * The JSON is what jupyter_gpucluster/card.py wrote, or what somebody else put in a notebook: nothing in it is trusted.
 */
import { TranslationBundle } from '@jupyterlab/translation';

import { HistoryView, JobView, Progress, TaskView } from '../api/schemas';
import { isJobId } from './interests';
import * as words from './words';

/** The version of the card's JSON that is understood here. */
export const CARD_VERSION = 1;
/** Far more than a kernel writes: a page that shows a card takes no longer, whatever stands in the notebook. */
const MOST_CHARS = 10_000;
const MOST_TEXTS = 1000;

/** A job as a card's JSON knows it. */
export interface ICard {
  /** The job at the time of the JSON. What the JSON does not have (whose it is, who may control it) is not granted. */
  job: JobView;
  simulated: boolean;
  /** What stands after the card is the job's output. */
  fillsCell: boolean;
  summary: string;
  limits: string;
  hints: string[];
  notes: string[];
  warnings: string[];
}

export type Json = Record<string, unknown>;

/** Null when this is no card of a version that is understood here. */
export function parseCard(data: unknown): ICard | null {
  if (!isObject(data) || data.version !== CARD_VERSION) {
    return null;
  }
  const { job_id: id, number, state } = data;
  if (
    typeof id !== 'string' ||
    !isJobId(id) || // it becomes part of addresses
    !isNumber(number) ||
    typeof state !== 'string'
  ) {
    return null;
  }
  const drawing = isObject(data.drawing) ? data.drawing : {};
  return {
    job: jobOf(data, id, number, state),
    simulated: data.simulated === true,
    fillsCell: drawing.fills_cell === true,
    summary: text(data.summary),
    limits: text(data.limits),
    hints: texts(data.hints),
    notes: texts(data.notes),
    warnings: texts(data.warnings)
  };
}

function jobOf(data: Json, id: string, number: number, state: string): JobView {
  const attempts = isNumber(data.attempts_made) ? data.attempts_made : 0;
  return {
    id,
    number,
    state,
    name: text(data.name),
    owner: '',
    owner_name: text(data.owner),
    mine: false,
    queue: text(data.queue),
    reason: text(data.reason) || null,
    waits: text(data.waits) || null,
    position: numberOrNull(data.position),
    tier: 1,
    priority: 0,
    gpus: numberOrNull(data.gpus) ?? 0,
    gpu_types: [],
    tasks: numberOrNull(data.tasks) ?? 1,
    cpus: 0,
    memory_bytes: 0,
    time_limit_s: null,
    submitted_us: numberOrNull(data.submitted_us) ?? 0,
    started_us: numberOrNull(data.started_us),
    ended_us: numberOrNull(data.ended_us),
    first_feedback_us: numberOrNull(data.first_feedback_us),
    attempts_made: attempts,
    attempt: attemptOf(data.place, attempts),
    progress: progressOf(data.progress),
    share: 'owner',
    notebook_path: null,
    cell_id: null,
    execution_count: null,
    fills_cell: false,
    can_control: false,
    can_read: false,
    seq: numberOrNull(data.seq) ?? -1
  };
}

/** The attempt with as many tasks as it takes to say where it ran: one for each node. */
function attemptOf(place: unknown, number: number): JobView['attempt'] {
  if (!isObject(place) || !isNumber(place.nodes) || place.nodes < 1) {
    return null;
  }
  const names = texts(place.names);
  const indices = Array.isArray(place.gpu_indices)
    ? place.gpu_indices.filter(isNumber)
    : [];
  const count = Math.min(place.nodes, 10_000);
  const tasks = Array.from({ length: count }, (_, rank) =>
    // Nodes that are not named are counted only.
    taskOf(rank, names[rank] ?? `node ${rank + 1}`, rank ? [] : indices)
  );
  return {
    id: '',
    number,
    state: '',
    created_us: 0,
    started_us: null,
    ended_us: null,
    outcome: null,
    reason: null,
    tasks,
    tasks_left_out: 0
  };
}

function taskOf(rank: number, node: string, gpu_indices: number[]): TaskView {
  return {
    role: '',
    rank,
    node,
    gpus: [],
    gpu_indices,
    state: '',
    exit_code: null,
    reason: null,
    cpu_percent: null,
    memory_bytes: null,
    note: null,
    ended_us: null,
    stop_cause: null
  };
}

function progressOf(data: unknown): Progress | null {
  if (!isObject(data) || !isNumber(data.step)) {
    return null;
  }
  const metrics = Object.entries(isObject(data.metrics) ? data.metrics : {});
  return {
    step: data.step,
    total: numberOrNull(data.total),
    metrics: Object.fromEntries(
      metrics.filter(
        (entry): entry is [string, number | string] =>
          isNumber(entry[1]) || typeof entry[1] === 'string'
      )
    ),
    time_us: numberOrNull(data.time_us) ?? 0,
    rank: numberOrNull(data.rank) ?? 0,
    source: text(data.source),
    description: text(data.description) || null
  };
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

function numberOrNull(value: unknown): number | null {
  return isNumber(value) ? value : null;
}

export function text(value: unknown): string {
  if (typeof value !== 'string') {
    return '';
  }
  return value.length > MOST_CHARS ? `${value.slice(0, MOST_CHARS)}…` : value;
}

export function texts(value: unknown): string[] {
  return Array.isArray(value)
    ? value.slice(0, MOST_TEXTS).map(text).filter(Boolean)
    : [];
}

/**
 * The job as it is known best. A later event number is newer; a job that has ended does not come back, so an end wins
 * over what an older JSON without a number, or a view that is under way, says.
 */
export function newest(card: ICard, live: JobView | undefined): JobView {
  if (live === undefined) {
    return card.job;
  }
  const told = card.job;
  const isTold =
    words.isEnded(told.state) === words.isEnded(live.state)
      ? told.seq > live.seq
      : words.isEnded(told.state);
  if (!isTold) {
    return live;
  }
  const { state, reason, waits, position, started_us, ended_us, seq } = told;
  const { first_feedback_us, attempts_made, attempt, progress } = told;
  return {
    ...live,
    ...{ state, reason, waits, position, started_us, ended_us, seq },
    ...{ first_feedback_us, attempts_made, attempt, progress }
  };
}

/** Why a job that ran does not run now: the question that such a card is looked at with. */
export interface INotice {
  /** What happened, by whom and why. */
  what: string;
  /** What comes now; "" when that stands elsewhere. */
  next: string;
}

/** Whether there is something to explain: the job is being stopped, or waits again after it ran. */
export function isDisturbed(job: JobView): boolean {
  return (
    job.state === 'stopping' ||
    (job.state === 'pending' && job.attempts_made > 0)
  );
}

/** Causes after which the job goes back to its queue and starts again by itself, unless asked never to. */
const COMES_BACK: ReadonlySet<string> = new Set(['evict', 'drain', 'migrate']);
/** The issuer of what the scheduler does by itself. */
const SYSTEM = 'system:';

/** `history`: of the job, oldest first; empty while it is not known. */
export function notice(
  job: JobView,
  history: readonly HistoryView[],
  trans: TranslationBundle
): INotice | null {
  if (!isDisturbed(job)) {
    return null;
  }
  const entry = causing(job, history);
  const why = entry ? words.happening(entry, trans) : (job.reason ?? '');
  const told = words.joined([why, entry && actorText(job, entry, trans)], ' ');
  if (job.state === 'stopping') {
    return {
      what: words.joined([trans.__('Being stopped'), told], ': '),
      next:
        entry && COMES_BACK.has(entry.cause)
          ? trans.__(
              'Then it waits in its queue again, unless it was submitted with --requeue never.'
            )
          : ''
    };
  }
  const over = trans.__('Attempt %1 is over', job.attempts_made);
  return {
    what: words.joined([over, told], ': '),
    next: trans.__('The job starts again by itself.')
  };
}

/** "by ada"; "" for what the scheduler did by itself. */
function actorText(
  job: JobView,
  entry: HistoryView,
  trans: TranslationBundle
): string {
  if (!entry.actor || entry.actor.startsWith(SYSTEM)) {
    return '';
  }
  if (entry.actor === job.owner) {
    return job.mine ? trans.__('by you') : trans.__('by %1', job.owner_name);
  }
  return trans.__('by %1', entry.actor);
}

/** The entry that tells why the present or last attempt was stopped: the strongest cause comes last. */
function causing(
  job: JobView,
  history: readonly HistoryView[]
): HistoryView | null {
  const ofAttempt = history.filter(
    entry => entry.attempt === job.attempts_made
  );
  const stops = ofAttempt.filter(entry => entry.to_state === 'stopping');
  const last = ofAttempt[ofAttempt.length - 1];
  return (
    stops[stops.length - 1] ?? (last?.to_state === 'pending' ? last : null)
  );
}
