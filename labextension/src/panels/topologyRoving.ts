/** Pointer and keys on the grid of the topology. One box alone is in the page's tab order; the arrow keys lead to the others. */
import * as React from 'react';

import { INodeTree } from '../model/topology';
import { IPlace, moved, Row } from '../model/topologyLayout';
import { isGridKey } from '../widgets/ownKeys';

export interface IRovingTarget {
  /** What the pointer is on, and what the keyboard is on; null = nothing. */
  onHover(place: IPlace | null): void;
  onFocus(place: IPlace | null): void;
  /** A GPU or a node was clicked, or chosen by the space bar. */
  onPick(place: IPlace): void;
  /** Enter. */
  onOpen(place: IPlace): void;
  onEscape(): void;
}

export interface IRoving {
  /** What the keyboard is on, or would be; null in an empty grid. */
  readonly active: IPlace | null;
  readonly events: React.HTMLAttributes<HTMLElement>;
  /** Whether the focus waits for the active box to be drawn, and be scrolled to. */
  readonly isMoving: React.RefObject<boolean>;
}

/** The active place outlives what happens to the grid: when its node is gone, the first one takes its part. */
export function useRoving(
  rows: readonly Row[],
  target: IRovingTarget,
  grid: React.RefObject<HTMLElement>
): IRoving {
  const [chosen, setActive] = React.useState<IPlace | null>(null);
  const isMoving = React.useRef(false);
  // A click leaves the focus where nobody looks any more: then the pointer alone tells what is pointed at.
  const isByPointer = React.useRef(false);
  const active = present(rows, chosen);
  React.useLayoutEffect(() => {
    const element =
      isMoving.current && active && elementAt(grid.current, active);
    if (element) {
      isMoving.current = false;
      element.focus({ preventScroll: true });
    }
  });
  const events: React.HTMLAttributes<HTMLElement> = {
    onFocus: event => {
      const place = placeOf(event.target);
      if (place) {
        setActive(place);
        target.onFocus(isByPointer.current ? null : place);
      }
    },
    onBlur: event => {
      if (!isWithin(event.currentTarget, event.relatedTarget)) {
        target.onFocus(null);
      }
    },
    onPointerDown: () => {
      isByPointer.current = true;
    },
    onPointerOver: event => target.onHover(placeOf(event.target)),
    onPointerLeave: () => target.onHover(null),
    onClick: event => {
      const place = placeOf(event.target);
      if (place) {
        target.onPick(place);
      }
    },
    onKeyDown: event => {
      const from = placeOf(event.target);
      if (!from) {
        return;
      }
      isByPointer.current = false;
      target.onFocus(event.key === 'Escape' ? null : from); // nothing is shown up then
      if (!isGridKey(event)) {
        return;
      }
      const to = moved(rows, from, event.key, event.ctrlKey || event.metaKey);
      if (to) {
        isMoving.current = true;
        setActive(to);
      } else if (event.key === 'Enter') {
        target.onOpen(from);
      } else if (event.key === ' ') {
        target.onPick(from);
      } else if (event.key === 'Escape') {
        target.onEscape();
      }
      // At an end of the grid an arrow leads nowhere; it should not scroll the page then.
      event.preventDefault();
      event.stopPropagation();
    }
  };
  return { active, events, isMoving };
}

function present(rows: readonly Row[], place: IPlace | null): IPlace | null {
  const tree = place && treeAt(rows, place.node);
  if (tree) {
    return { ...place, box: Math.min(place.box, tree.boxes.length - 1) };
  }
  const first = rows.find(row => row.kind === 'nodes');
  return first?.kind === 'nodes'
    ? { node: first.nodes[0].node.name, box: -1 }
    : null;
}

function treeAt(rows: readonly Row[], node: string): INodeTree | undefined {
  for (const row of rows) {
    const tree =
      row.kind === 'nodes' && row.nodes.find(one => one.node.name === node);
    if (tree) {
      return tree;
    }
  }
  return undefined;
}

// ---- from elements to places and back

function placeOf(target: EventTarget): IPlace | null {
  const element = (target as Element).closest<HTMLElement>('[data-box]');
  return element
    ? { node: element.dataset.node!, box: Number(element.dataset.box) }
    : null;
}

function elementAt(
  grid: HTMLElement | null,
  place: IPlace
): HTMLElement | undefined {
  const boxes = grid?.querySelectorAll<HTMLElement>(
    `[data-box="${place.box}"]`
  );
  return [...(boxes ?? [])].find(box => box.dataset.node === place.node);
}

function isWithin(element: Element, other: EventTarget | null): boolean {
  return other instanceof Node && element.contains(other);
}
