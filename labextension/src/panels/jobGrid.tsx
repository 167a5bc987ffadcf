/** The rows of the list of jobs: only those in view are there, the keyboard moves among all, and nothing jumps. */
import { TranslationBundle } from '@jupyterlab/translation';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import {
  defaultRangeExtractor,
  Range,
  useVirtualizer,
  VirtualItem
} from '@tanstack/react-virtual';
import * as React from 'react';

import { highlight } from '../model/highlight';
import { Group, groupLabel, ListRow, Scope, stepTo } from '../model/jobList';
import { isEnded, jobTitle, stateLabel } from '../model/words';
import { IGpuCluster } from '../tokens';
import { useSignal } from './hooks';
import { IJobActions, IJobActionState } from './jobActions';
import { JobRow, uncancellable } from './jobRow';

/** Before a row was measured, by what it is. */
const HEIGHTS = { group: 26, older: 40, running: 78, waiting: 62, ended: 44 };
const OVERSCAN = 6;

export interface IJobGridProps {
  rows: readonly ListRow[];
  scope: Scope;
  cluster: IGpuCluster;
  state: IJobActionState;
  actions: IJobActions;
  onToggleGroup: (group: Group) => void;
  /** Long ids of the jobs in view with blanks between them, whenever these are others. */
  onView: (ids: string) => void;
  trans: TranslationBundle;
}

export function JobGrid(props: IJobGridProps): JSX.Element {
  const { rows, cluster, scope, state, actions, trans } = props;
  const grid = React.useRef<HTMLDivElement>(null);
  const [active, setActive] = React.useState<string | null>(null);
  const activeKey = useActive(rows, active);
  const virtualizer = useRows(rows, grid, activeKey);
  const items = virtualizer.getVirtualItems();
  const hovered = React.useRef<string | null>(null);
  useAnchor(
    rows,
    items,
    index => virtualizer.measurementsCache[index]?.start,
    grid,
    hovered
  );
  useSignal(highlight.changed);
  const inView = items
    .map(item => rows[item.index])
    .filter(row => row?.kind === 'job')
    .map(row => row.key)
    .join(' ');
  const { onView } = props;
  React.useEffect(() => onView(inView), [onView, inView]);

  const go = (key: string | null) => {
    const index = rows.findIndex(row => row.key === key);
    if (key === null || index < 0) {
      return;
    }
    setActive(key);
    virtualizer.scrollToIndex(index, { align: 'auto' });
    focusRow(grid.current, key);
  };
  return (
    <div
      ref={grid}
      role="grid"
      aria-label={trans.__('Jobs')}
      aria-rowcount={rows.length}
      className="jp-gpucluster-jobs"
      onKeyDown={event => onGridKey(event, props, activeKey, go)}
      onMouseLeave={() => {
        hovered.current = null;
        highlight.hover(null);
      }}
    >
      <KeepFocus grid={grid} rows={rows}>
        <div
          role="rowgroup"
          className="jp-gpucluster-jobSpace"
          style={{ height: virtualizer.getTotalSize() }}
        >
          {items.map(item => {
            const row = rows[item.index];
            return (
              row && (
                <div
                  key={row.key}
                  ref={virtualizer.measureElement}
                  role="row"
                  {...rowProps(row, state, trans)}
                  data-index={item.index}
                  data-key={row.key}
                  aria-rowindex={item.index + 1}
                  tabIndex={row.key === activeKey ? 0 : -1}
                  style={{ transform: `translateY(${item.start}px)` }}
                  onFocus={() => setActive(row.key)}
                  onMouseEnter={() => {
                    hovered.current = row.key;
                    highlight.hover(row.kind === 'job' ? row.job.number : null);
                  }}
                  onDoubleClick={() => {
                    if (row.kind === 'job' && row.job.can_read) {
                      actions.openLog(row.key);
                    }
                  }}
                >
                  {row.kind === 'job' ? (
                    <JobRow
                      job={row.job}
                      track={cluster.track(row.key)}
                      reports={cluster.track(row.key).reports}
                      scope={scope}
                      isActive={row.key === activeKey}
                      isAsking={state.asking === row.key}
                      isSent={state.sent.has(row.key)}
                      error={state.errors.get(row.key)}
                      isExpanded={state.expanded.has(row.key)}
                      actions={actions}
                      clockOffsetMs={cluster.clockOffsetMs}
                      trans={trans}
                    />
                  ) : (
                    <OtherRow
                      row={row}
                      isActive={row.key === activeKey}
                      onToggleGroup={props.onToggleGroup}
                      trans={trans}
                    />
                  )}
                </div>
              )
            );
          })}
        </div>
      </KeepFocus>
    </div>
  );
}

/** What a row is called and marked by; `jp-gpucluster-job` and `data-job-id` are what the context menu goes by. */
function rowProps(
  row: ListRow,
  state: IJobActionState,
  trans: TranslationBundle
): React.HTMLAttributes<HTMLDivElement> & Record<`data-${string}`, unknown> {
  if (row.kind !== 'job') {
    return { className: `jp-gpucluster-row jp-gpucluster-mod-${row.kind}` };
  }
  const { job } = row;
  const isLit = highlight.job === job.number;
  const isStopping = state.sent.has(job.id) && !isEnded(job.state);
  return {
    className: 'jp-gpucluster-row jp-gpucluster-job',
    'data-job-id': job.id,
    'data-lit': isLit,
    'aria-label': `${jobTitle(job, trans)}, ${stateLabel(
      isStopping ? 'stopping' : job.state,
      trans
    )}`
  };
}

function OtherRow(props: {
  row: Exclude<ListRow, { kind: 'job' }>;
  isActive: boolean;
  onToggleGroup: (group: Group) => void;
  trans: TranslationBundle;
}): JSX.Element {
  const { row, isActive, onToggleGroup, trans } = props;
  if (row.kind === 'older') {
    return (
      <div role="gridcell" className="jp-gpucluster-older">
        {trans._n(
          '%2 older job is not listed; %jobs lists more.',
          '%2 older jobs are not listed; %jobs lists more.',
          row.count,
          row.count
        )}
      </div>
    );
  }
  const Caret = row.isOpen ? caretDownIcon : caretRightIcon;
  return (
    <div role="gridcell">
      <button
        type="button"
        className="jp-gpucluster-group"
        aria-expanded={row.isOpen}
        tabIndex={isActive ? 0 : -1}
        onClick={() => onToggleGroup(row.group)}
      >
        <Caret.react tag="span" className="jp-gpucluster-caret" />
        <span>{groupLabel(row.group, trans)}</span>
        <span className="jp-gpucluster-count">{row.count}</span>
      </button>
    </div>
  );
}

/** The row that Tab leads to: the one that was last there; the first job before, and when it is gone, its successor. */
function useActive(
  rows: readonly ListRow[],
  active: string | null
): string | null {
  const index = React.useRef(-1);
  const found = rows.findIndex(row => row.key === active);
  if (found >= 0) {
    index.current = found;
    return active;
  }
  const first = rows.findIndex(row => row.kind === 'job');
  const at = index.current >= 0 ? index.current : Math.max(first, 0);
  return rows[Math.min(at, rows.length - 1)]?.key ?? null;
}

function useRows(
  rows: readonly ListRow[],
  grid: React.RefObject<HTMLDivElement>,
  activeKey: string | null
) {
  const activeIndex = rows.findIndex(row => row.key === activeKey);
  return useVirtualizer<HTMLDivElement, HTMLDivElement>({
    count: rows.length,
    getScrollElement: () => grid.current,
    estimateSize: index => {
      const row = rows[index];
      return row.kind === 'job' ? HEIGHTS[row.group] : HEIGHTS[row.kind];
    },
    getItemKey: React.useCallback((index: number) => rows[index].key, [rows]),
    overscan: OVERSCAN,
    // The row with the focus stays there however far one scrolls.
    rangeExtractor: React.useCallback(
      (range: Range) => {
        const shown = defaultRangeExtractor(range);
        return activeIndex < 0 || shown.includes(activeIndex)
          ? shown
          : [...shown, activeIndex].sort((one, other) => one - other);
      },
      [activeIndex]
    )
  });
}

/**
 * When rows come or go above it, the row under the mouse stays where it is; without one that with the focus, and in a list
 * that is scrolled the first in view.
 */
function useAnchor(
  rows: readonly ListRow[],
  items: VirtualItem[],
  startOf: (index: number) => number | undefined,
  grid: React.RefObject<HTMLDivElement>,
  hovered: React.MutableRefObject<string | null>
): void {
  const before = React.useRef(new Map<string, number>());
  React.useLayoutEffect(() => {
    const element = grid.current;
    if (!element) {
      return;
    }
    const focused = element.contains(document.activeElement)
      ? document.activeElement?.closest<HTMLElement>('[role="row"]')?.dataset
          .key
      : undefined;
    const firstInView =
      element.scrollTop > 0
        ? [...before.current].find(([, start]) => start >= element.scrollTop)
        : undefined;
    const key = hovered.current ?? focused ?? firstInView?.[0];
    const was = key === undefined ? undefined : before.current.get(key);
    const is = startOf(rows.findIndex(row => row.key === key));
    if (was !== undefined && is !== undefined && was !== is) {
      element.scrollTop += is - was;
    }
    // Only new rows move others; that a row grows is the virtualizer's business.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [rows]);
  React.useLayoutEffect(() => {
    before.current = new Map(items.map(item => [String(item.key), item.start]));
  });
}

interface IKeepFocusProps {
  grid: React.RefObject<HTMLDivElement>;
  rows: readonly ListRow[];
  children: React.ReactNode;
}

/** A row that moves in the document, or is gone, loses the focus: it is given back to it, or to the row that took its place. */
class KeepFocus extends React.Component<IKeepFocusProps> {
  getSnapshotBeforeUpdate(): { key: string; index: number } | null {
    const focused = document.activeElement;
    const row = focused?.closest<HTMLElement>('[role="row"]');
    return row && this.props.grid.current?.contains(row)
      ? { key: row.dataset.key ?? '', index: Number(row.dataset.index) }
      : null;
  }

  componentDidUpdate(
    _: unknown,
    __: unknown,
    had: { key: string; index: number } | null
  ): void {
    const { grid, rows } = this.props;
    const lost =
      document.activeElement === null ||
      document.activeElement === document.body;
    if (!had || !lost || !rows.length) {
      return;
    }
    const near = rows[Math.min(had.index, rows.length - 1)].key;
    if (!focusRow(grid.current, had.key)) {
      focusRow(grid.current, near);
    }
  }

  render(): React.ReactNode {
    return this.props.children;
  }
}

function focusRow(grid: HTMLElement | null, key: string): boolean {
  const row = [
    ...(grid?.querySelectorAll<HTMLElement>('[role="row"]') ?? [])
  ].find(one => one.dataset.key === key);
  row?.focus({ preventScroll: true });
  return row !== undefined;
}

/** Keys of a grid: arrows move, Enter opens the log, Delete asks, Space shows details, left and right reach the buttons. */
function onGridKey(
  event: React.KeyboardEvent,
  props: IJobGridProps,
  activeKey: string | null,
  go: (key: string | null) => void
): void {
  const { rows, actions, state, trans } = props;
  const target = event.target as HTMLElement;
  const row = rows.find(one => one.key === activeKey);
  const isOnRow = target.getAttribute('role') === 'row';
  const step = STEPS[event.key];
  if (step !== undefined) {
    go(stepTo(rows, activeKey, step));
  } else if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') {
    moveInRow(target, event.key === 'ArrowRight' ? 1 : -1);
  } else if (event.key === 'Escape' && state.asking !== null) {
    actions.dontAsk();
    go(activeKey);
  } else if (row?.kind === 'group' && isOnRow && isPress(event)) {
    props.onToggleGroup(row.group);
  } else if (row?.kind !== 'job' || !isOnRow) {
    return;
  } else if (event.key === 'Enter') {
    if (row.job.can_read) {
      actions.openLog(row.key);
    }
  } else if (event.key === ' ') {
    actions.toggleDetails(row.key);
  } else if (event.key === 'Delete') {
    const isSent = state.sent.has(row.key);
    const shown = isSent ? 'stopping' : row.job.state;
    if (
      !isEnded(row.job.state) &&
      uncancellable(row.job, shown, trans) === undefined
    ) {
      actions.ask(row.key);
    }
  } else {
    return;
  }
  event.preventDefault();
}

const PAGE = 8;
const STEPS: Record<string, number> = {
  ArrowDown: 1,
  ArrowUp: -1,
  PageDown: PAGE,
  PageUp: -PAGE,
  Home: -Infinity,
  End: Infinity
};

function isPress(event: React.KeyboardEvent): boolean {
  return event.key === 'Enter' || event.key === ' ';
}

/** From the row to its buttons and back. */
function moveInRow(target: HTMLElement, by: number): void {
  const row = target.closest<HTMLElement>('[role="row"]');
  if (row) {
    const stops = [row, ...row.querySelectorAll<HTMLElement>('button')];
    stops[stops.indexOf(target) + by]?.focus();
  }
}
