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

import { JobView } from '../api/schemas';
import { highlight } from '../model/highlight';
import { Group, groupLabel, ListRow, Scope, stepTo } from '../model/jobList';
import { isEnded, jobTitle, stateLabel } from '../model/words';
import { IGpuCluster } from '../tokens';
import { useSignal } from './hooks';
import { IJobActions, IJobActionState } from './jobActions';
import { askToCancel, JobRow, openLog } from './jobRow';

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

/** Of a question all, for it comes and goes under the pointer. */
const CONTROLS = 'button, .jp-gpucluster-jobQuestion';

function isControl(target: EventTarget): boolean {
  return target instanceof Element && target.closest(CONTROLS) !== null;
}

export function JobGrid(props: IJobGridProps): JSX.Element {
  const { rows, cluster, scope, state, actions, trans } = props;
  const grid = React.useRef<HTMLDivElement>(null);
  const [active, setActive] = React.useState<string | null>(null);
  const activeKey = useActive(rows, active);
  const virtualizer = useRows(rows, grid, activeKey);
  const items = virtualizer.getVirtualItems();
  const heading = headingOf(rows, virtualizer.range?.startIndex ?? 0);
  const hovered = React.useRef<string | null>(null);
  const isOnControl = React.useRef(false);
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
      <KeepPlace
        grid={grid}
        rows={rows}
        items={items}
        hovered={hovered}
        startOf={index => startOf(virtualizer, index)}
      >
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
                  style={
                    item.index === heading
                      ? { position: 'sticky', zIndex: 1 }
                      : { transform: `translateY(${item.start}px)` }
                  }
                  onFocus={() => setActive(row.key)}
                  onMouseEnter={() => {
                    hovered.current = row.key;
                    highlight.hover(row.kind === 'job' ? row.job.number : null);
                  }}
                  onMouseDown={event => {
                    // Where a double click began: what stood there may be gone at its end.
                    if (event.detail <= 1) {
                      isOnControl.current = isControl(event.target);
                    }
                  }}
                  onDoubleClick={event => {
                    const isOnRow =
                      !isOnControl.current && !isControl(event.target);
                    if (row.kind === 'job' && isOnRow) {
                      openLog(row.job, actions, trans);
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
                      state={shownState(row.job, state)}
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
      </KeepPlace>
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
  return {
    className: 'jp-gpucluster-row jp-gpucluster-job',
    'data-job-id': job.id,
    'data-lit': isLit,
    'aria-label': `${jobTitle(job, trans)}, ${stateLabel(
      shownState(job, state),
      trans
    )}`
  };
}

/** One that was just cancelled is stopping, though the cluster has not said so yet. */
function shownState(job: JobView, state: IJobActionState): string {
  return state.sent.has(job.id) && !isEnded(job.state) ? 'stopping' : job.state;
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
    scrollPaddingStart: HEIGHTS.group,
    // The row with the focus stays there however far one scrolls, and so does the heading of what is in view.
    rangeExtractor: React.useCallback(
      (range: Range) => {
        const heading = headingOf(rows, range.startIndex);
        const shown = new Set(defaultRangeExtractor(range));
        [heading, activeIndex]
          .filter(at => at >= 0)
          .forEach(at => shown.add(at));
        return [...shown].sort((one, other) => one - other);
      },
      [rows, activeIndex]
    )
  });
}

/** Where a row begins, with what was measured since the last drawing. */
function startOf(
  virtualizer: ReturnType<typeof useRows>,
  index: number
): number | undefined {
  virtualizer.getVirtualItems(); // takes in what was measured
  return virtualizer.measurementsCache[index]?.start;
}

/** Index of the heading above a row, or of the row itself when it is one; -1 without any. */
function headingOf(rows: readonly ListRow[], index: number): number {
  for (let at = Math.min(index, rows.length - 1); at >= 0; at--) {
    if (rows[at].kind === 'group') {
      return at;
    }
  }
  return -1;
}

interface IKeepPlaceProps {
  grid: React.RefObject<HTMLDivElement>;
  rows: readonly ListRow[];
  items: readonly VirtualItem[];
  /** Key of the row under the mouse. */
  hovered: { readonly current: string | null };
  /** Where a row begins, by its index, as measured by now. */
  startOf: (index: number) => number | undefined;
  children: React.ReactNode;
}

interface IPlace {
  /** The row with the focus: its key and index. */
  focused: { key: string; index: number } | null;
  /** The row that is to stay where it is in the window onto the list. */
  anchor: { key: string; offset: number } | null;
}

/**
 * What one looks at stays where it is when rows come and go: the row under the mouse, without one that with the focus, and
 * in a list that is scrolled the first in view. A row that moves in the document, or is gone, loses the focus: it is given
 * back to it, or to the row that took its place.
 */
class KeepPlace extends React.Component<IKeepPlaceProps> {
  componentDidMount(): void {
    this.remember();
  }

  getSnapshotBeforeUpdate(before: IKeepPlaceProps): IPlace {
    const focused = this.focused();
    return {
      focused,
      anchor: before.rows !== this.props.rows ? this.anchor(focused?.key) : null
    };
  }

  componentDidUpdate(_: unknown, __: unknown, place: IPlace): void {
    if (place.anchor) {
      this.holdFast(place.anchor);
    }
    if (place.focused) {
      this.giveBack(place.focused);
    }
    this.remember();
  }

  render(): React.ReactNode {
    return this.props.children;
  }

  private focused(): IPlace['focused'] {
    const row = document.activeElement?.closest<HTMLElement>('[role="row"]');
    return row && this.props.grid.current?.contains(row)
      ? { key: row.dataset.key ?? '', index: Number(row.dataset.index) }
      : null;
  }

  private anchor(focused: string | undefined): IPlace['anchor'] {
    const scrolled = this.props.grid.current?.scrollTop ?? 0;
    const firstInView = [...this.starts].find(
      ([, start]) => scrolled > 0 && start >= scrolled
    )?.[0];
    const key = this.props.hovered.current ?? focused ?? firstInView;
    const start = key === undefined ? undefined : this.starts.get(key);
    return key === undefined || start === undefined
      ? null
      : { key, offset: start - scrolled };
  }

  private holdFast({ key, offset }: { key: string; offset: number }): void {
    const { grid, rows, startOf } = this.props;
    const start = startOf(rows.findIndex(row => row.key === key));
    if (grid.current && start !== undefined) {
      const scrolled = Math.max(0, start - offset);
      if (Math.abs(scrolled - grid.current.scrollTop) >= 1) {
        grid.current.scrollTop = scrolled;
      }
    }
  }

  private giveBack({ key, index }: { key: string; index: number }): void {
    const { grid, rows } = this.props;
    const isLost = [null, document.body].includes(
      document.activeElement as HTMLElement | null
    );
    if (isLost && rows.length && !focusRow(grid.current, key)) {
      focusRow(grid.current, rows[Math.min(index, rows.length - 1)].key);
    }
  }

  /** Where the rows begin that are drawn now. */
  private remember(): void {
    const { items, rows, startOf } = this.props;
    this.starts = new Map(
      items
        .filter(item => item.index < rows.length)
        .map(item => [rows[item.index].key, startOf(item.index) ?? item.start])
    );
  }

  private starts = new Map<string, number>();
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
    openLog(row.job, actions, trans);
  } else if (event.key === ' ') {
    actions.toggleDetails(row.key);
  } else if (event.key === 'Delete') {
    askToCancel(row.job, shownState(row.job, state), actions, trans);
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
