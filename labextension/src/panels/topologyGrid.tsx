/** The racks and nodes of the topology; only those in sight are drawn. */
import { TranslationBundle } from '@jupyterlab/translation';
import {
  defaultRangeExtractor,
  Range,
  useVirtualizer,
  Virtualizer
} from '@tanstack/react-virtual';
import * as React from 'react';

import { INodeTree, IRack } from '../model/topology';
import { freeOf } from '../model/topologyFree';
import { IPlace, Row } from '../model/topologyLayout';
import { freeText, ILevels, rackText } from '../model/topologyWords';
import { GRID_KEYS_CLASS, useOwnKeys } from '../widgets/ownKeys';
import { Room, TopologyNode } from './topologyNode';
import { IRovingTarget, useRoving } from './topologyRoving';

export interface IGridProps {
  rows: readonly Row[];
  room: Room;
  /** Columns of nodes. */
  columns: number;
  /** The utilisation of any GPU is known: roomy boxes have a place for it. */
  isMeasured: boolean;
  /** Some nodes are simulated and some are not. */
  isMixed: boolean;
  /** The job to show up. */
  lit: number | null;
  label: string;
  names: ILevels;
  trans: TranslationBundle;
  target: IRovingTarget;
}

/** Heights in pixels; the style sheet fits what stands in them into them. */
const HEIGHTS = {
  line: { rack: 24, node: 2, line: 20, note: 16, gap: 0 },
  dense: { rack: 36, node: 35, line: 27, note: 16, gap: 8 },
  roomy: { rack: 36, node: 35, line: 134, note: 16, gap: 8 }
} as const;
/** What a roomy line does without where nothing is measured. */
const USAGE_HEIGHT = 30;
const OVERSCAN_ROWS = 8;

/** Without a change of what it is given it is not drawn anew: the pointer on a GPU changes other parts of the view. */
export const TopologyGrid = React.memo(function TopologyGrid(
  props: IGridProps
): JSX.Element {
  const { rows, lit } = props;
  const scroller = React.useRef<HTMLDivElement>(null);
  useOwnKeys();
  const { active, events, isMoving } = useRoving(rows, props.target, scroller);
  const activeRow = rows.findIndex(row => isIn(row, active));
  const virtual = useRows(props, scroller, activeRow);
  const firstIndices = React.useMemo(() => rowIndices(rows), [rows]);
  React.useLayoutEffect(() => {
    if (isMoving.current || isFocused(scroller.current)) {
      virtual.scrollToIndex(activeRow);
    }
    // Only when the keyboard goes on: not when somebody scrolls away from it.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [activeRow]);
  return (
    <div
      ref={scroller}
      className={`jp-gpucluster-topologyScroller ${GRID_KEYS_CLASS}`}
      {...events}
    >
      <div
        role="grid"
        aria-label={props.label}
        aria-rowcount={firstIndices[rows.length] - 1}
        className={gridClass(rows, lit)}
        style={{ height: virtual.getTotalSize() }}
      >
        {virtual.getVirtualItems().map(item => (
          <div
            key={item.key}
            className={rowClass(rows[item.index])}
            style={{
              height: item.size,
              gridTemplateColumns: `repeat(${columnsOf(rows[item.index], props)}, minmax(0, 1fr))`,
              transform: `translateY(${item.start}px)`
            }}
          >
            <GridRow
              {...props}
              row={rows[item.index]}
              firstIndex={firstIndices[item.index]}
              active={activeRow === item.index ? active : null}
            />
          </div>
        ))}
      </div>
    </div>
  );
});

function useRows(
  props: IGridProps,
  scroller: React.RefObject<HTMLDivElement>,
  activeRow: number
): Virtualizer<HTMLDivElement, Element> {
  const { rows, room, isMeasured } = props;
  const estimateSize = React.useCallback(
    (at: number) => rowHeight(rows[at], room, isMeasured),
    [rows, room, isMeasured]
  );
  // A new function each time that heights may have changed: the virtualizer reckons anew then.
  const getItemKey = React.useCallback(
    (at: number) => rows[at].key,
    // eslint-disable-next-line react-hooks/exhaustive-deps
    [estimateSize]
  );
  // The row with the keyboard on it is always there, or the focus would be lost by scrolling.
  const rangeExtractor = React.useCallback(
    (range: Range) => {
      const inSight = defaultRangeExtractor(range);
      return activeRow < 0 || inSight.includes(activeRow)
        ? inSight
        : [...inSight, activeRow].sort((one, other) => one - other);
    },
    [activeRow]
  );
  return useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize,
    getItemKey,
    rangeExtractor,
    overscan: OVERSCAN_ROWS
  });
}

export function rowHeight(row: Row, room: Room, isMeasured: boolean): number {
  const heights = HEIGHTS[room];
  if (row.kind === 'rack') {
    return heights.rack;
  }
  const line =
    heights.line - (room === 'roomy' && !isMeasured ? USAGE_HEIGHT : 0);
  return (
    heights.node +
    row.lines * line +
    (row.hasNote ? heights.note : 0) +
    heights.gap
  );
}

/** The row index, from 1, of the first heading or node of each row; at last one more than there are. */
function rowIndices(rows: readonly Row[]): number[] {
  const indices = [1];
  for (const row of rows) {
    const size = row.kind === 'nodes' ? row.nodes.length : 1;
    indices.push(indices[indices.length - 1] + size);
  }
  return indices;
}

function gridClass(rows: readonly Row[], lit: number | null): string {
  const racks = rows[0].kind === 'rack' ? ' jp-gpucluster-mod-racks' : '';
  const showsUp = lit === null ? '' : ' jp-gpucluster-mod-showsUp';
  return `jp-gpucluster-topologyGrid${racks}${showsUp}`;
}

function rowClass(row: Row): string {
  const inRack =
    row.kind === 'rack'
      ? ' jp-gpucluster-mod-rack'
      : row.isLastOfRack
        ? ' jp-gpucluster-mod-lastOfRack'
        : '';
  return `jp-gpucluster-topologyRow${inRack}`;
}

function columnsOf(row: Row, { columns }: IGridProps): number {
  return row.kind === 'rack' ? 1 : columns;
}

function isIn(row: Row, place: IPlace | null): boolean {
  return (
    row.kind === 'nodes' &&
    row.nodes.some(tree => tree.node.name === place?.node)
  );
}

function isFocused(element: HTMLElement | null): boolean {
  return element !== null && element.contains(document.activeElement);
}

function GridRow(
  props: IGridProps & { row: Row; firstIndex: number; active: IPlace | null }
): JSX.Element {
  const { row, firstIndex, active, lit, names, trans } = props;
  if (row.kind === 'rack') {
    return (
      <RackHead
        rack={row.rack}
        rowIndex={firstIndex}
        names={names}
        trans={trans}
      />
    );
  }
  return (
    <>
      {row.nodes.map((tree, at) => (
        <TopologyNode
          key={tree.node.name}
          tree={tree}
          room={props.room}
          rowIndex={firstIndex + at}
          active={active?.node === tree.node.name ? active.box : null}
          lit={isOn(tree, lit) ? lit : null}
          isMixed={props.isMixed}
          names={names}
          trans={trans}
        />
      ))}
    </>
  );
}

function isOn(tree: INodeTree, job: number | null): boolean {
  return job !== null && tree.boxes.some(({ gpu }) => gpu.job_number === job);
}

function RackHead(props: {
  rack: IRack;
  rowIndex: number;
  names: ILevels;
  trans: TranslationBundle;
}): JSX.Element {
  const { rack, names, trans } = props;
  // Of a filtered rack what is shown of it counts.
  const boxes = rack.nodes.flatMap(tree => tree.boxes);
  return (
    <div
      role="row"
      aria-rowindex={props.rowIndex}
      className="jp-gpucluster-topologyRackHead"
    >
      <span role="rowheader">
        <span className="jp-gpucluster-topologyRackName">
          {rackText(rack.name, names.rack)}
        </span>{' '}
        <span className="jp-gpucluster-topologyRackFree">
          {trans._n('%1 node', '%1 nodes', rack.nodes.length)}
          {' · '}
          {freeText(freeOf(boxes), boxes.length, trans)}
        </span>
      </span>
    </div>
  );
}
