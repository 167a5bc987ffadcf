/**
 * The card in a cell's outputs: which job a cell shows, and whether somebody drew all of it.
 *
 * It stands in a file that anybody may have written, and is sent to the server: so what is taken out of it is what a kernel
 * of ours writes, and nothing else.
 */
import { IOutputAreaModel } from '@jupyterlab/outputarea';

import { CellDrawing } from '../api/schemas';
import { CARD_VERSION, isObject, Json, text, texts } from '../model/cardState';
import { isJobId } from '../model/interests';

export const CARD_MIME = 'application/vnd.gpucluster.job+json';

/** What a card in a notebook says of its job. */
export interface ICard {
  jobId: string;
  number: number;
  state: string;
  drawing: CellDrawing;
  /** What a card that is drawn anew takes over from it (`SavedCard` of redraw.py). */
  saved: Record<string, unknown>;
}

/** What of a cell's outputs is needed. */
export type CellOutputs = Pick<IOutputAreaModel, 'length' | 'get'>;

const SUBMITS = /^\s*%%submit\b/;

/**
 * The card of a cell that shows one job and nothing else; null when the cell is another one.
 *
 * Only such a cell can be drawn anew: of a cell in which other code runs as well, the job's log has but a part.
 */
export function cardOf(outputs: CellOutputs): ICard | null {
  const first = outputs.length > 0 ? outputs.get(0) : null;
  const data: unknown = first?.data[CARD_MIME];
  if (!isObject(data) || data.version !== CARD_VERSION) {
    return null;
  }
  const { job_id: jobId, number, state } = data;
  const drawing = drawingOf(data.drawing);
  if (
    typeof jobId !== 'string' ||
    !isJobId(jobId) ||
    typeof number !== 'number' ||
    !drawing?.fills_cell
  ) {
    return null;
  }
  return { jobId, number, state: text(state), drawing, saved: savedOf(data) };
}

const isFlag = (value: unknown) => typeof value === 'boolean';
const isCount = (value: unknown) =>
  Number.isSafeInteger(value) && Number(value) >= 0;

const DRAWING: Record<keyof CellDrawing, (value: unknown) => boolean> = {
  fills_cell: isFlag,
  complete: isFlag,
  rank: isCount,
  show_result: isFlag,
  execution_count: value => value === null || isCount(value),
  display_prefix: value =>
    typeof value === 'string' && /^\w{0,64}$/.test(value),
  text_bytes: isCount,
  display_bytes: isCount
};
const DRAWING_FIELDS = new Map(Object.entries(DRAWING));

/** Null when there is anything in it that a kernel would not have written, or that a later one did. */
function drawingOf(said: unknown): CellDrawing | null {
  const isOurs =
    isObject(said) &&
    Object.entries(said).every(([name, value]) =>
      DRAWING_FIELDS.get(name)?.(value)
    );
  return isOurs ? (said as CellDrawing) : null;
}

function savedOf(data: Json): ICard['saved'] {
  const sent = isObject(data.sent) ? data.sent : {};
  return {
    notes: texts(data.notes),
    warnings: texts(data.warnings),
    limits: text(data.limits),
    sent: {
      names: texts(sent.names),
      asked_back: texts(sent.asked_back),
      asks_limits: sent.asks_limits === true
    }
  };
}

/**
 * Whether all of the job stands in the cell. A job that did not end well leaves an error behind its card; a cell
 * without one was cut off between the two.
 */
export function isWhole(card: ICard, outputs: CellOutputs): boolean {
  if (!card.drawing.complete) {
    return false;
  }
  return card.state === 'succeeded' || hasError(outputs);
}

function hasError(outputs: CellOutputs): boolean {
  for (let index = outputs.length - 1; index >= 0; index--) {
    if (outputs.get(index).type === 'error') {
      return true;
    }
  }
  return false;
}

/** Whether a cell with this source submits itself as a job. */
export function submitsItself(source: string): boolean {
  return SUBMITS.test(source);
}
