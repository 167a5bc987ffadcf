/** Whether the user can see the cell of a job at this moment. */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { JobView } from '../api/schemas';

export function isCellInView(
  tracker: INotebookTracker | null,
  job: Pick<JobView, 'cell_id'>
): boolean {
  const { cell_id: cell } = job;
  if (!tracker || !cell || document.visibilityState === 'hidden') {
    return false;
  }
  return (
    tracker.find(panel => panel.isVisible && shows(panel, cell)) !== undefined
  );
}

function shows({ content }: NotebookPanel, cell: string): boolean {
  const widget = content.widgets.find(each => each.model.id.endsWith(cell));
  if (!widget?.isAttached) {
    return false; // far from the view, a cell is not drawn
  }
  const frame = content.node.getBoundingClientRect();
  const place = widget.node.getBoundingClientRect();
  return place.bottom > frame.top && place.top < frame.bottom;
}
