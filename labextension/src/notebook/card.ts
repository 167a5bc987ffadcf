/** The card in a cell's outputs: which job a cell shows, and whether somebody drew all of it. */
import { IOutputAreaModel } from '@jupyterlab/outputarea';

import { CellDrawing } from '../api/schemas';

export const CARD_MIME = 'application/vnd.gpucluster.job+json';

/** What a card in a notebook says of its job; `raw` is its whole JSON. */
export interface ICard {
  jobId: string;
  number: number;
  state: string;
  drawing: CellDrawing;
  raw: Record<string, unknown>;
}

/** What of a cell's outputs is needed. */
export type CellOutputs = Pick<IOutputAreaModel, 'length' | 'get'>;

const VERSION = 1;
const SUBMITS = /^\s*%%submit\b/;

/**
 * The card of a cell that shows one job and nothing else; null when the cell is another one.
 *
 * Only such a cell can be drawn anew: of a cell in which other code runs as well, the job's log has but a part.
 */
export function cardOf(outputs: CellOutputs): ICard | null {
  const first = outputs.length > 0 ? outputs.get(0) : null;
  const raw = first?.data[CARD_MIME] as Record<string, unknown> | undefined;
  const drawing = raw?.drawing as CellDrawing | undefined;
  if (
    !raw ||
    raw.version !== VERSION ||
    typeof raw.job_id !== 'string' ||
    typeof raw.number !== 'number' ||
    !drawing?.fills_cell
  ) {
    return null;
  }
  return {
    jobId: raw.job_id,
    number: raw.number,
    state: String(raw.state),
    drawing,
    raw
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
