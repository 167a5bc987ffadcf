/** The tabs that a widget stands in. */
import { TabPanel, Widget } from '@lumino/widgets';

/** Bring the widget to the front of its tabs; says whether it is in any. */
export function toFrontOfTabs(widget: Widget): boolean {
  let parent = widget.parent;
  while (parent && !(parent instanceof TabPanel)) {
    parent = parent.parent;
  }
  if (parent) {
    parent.currentWidget = widget;
  }
  return parent !== null;
}
