/** The queue tree: who uses how much of what was promised, and how much is free. */
import { TranslationBundle } from '@jupyterlab/translation';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import {
  barredText,
  explanations,
  freeText,
  IGpuFigures,
  IQueueRow,
  mineText,
  queueBar,
  queueLabel,
  queueRows,
  typeLabel,
  typeUsedText,
  usedText,
  waitingText
} from '../model/queues';
import { toggled, ViewState } from '../model/viewState';
import { joined } from '../model/words';
import { IGpuCluster } from '../tokens';
import { useTooltip } from '../widgets/tooltip';
import { Waiting } from './connection';
import { useCluster, useSignal, useWatch } from './hooks';

export interface IQueuesProps {
  cluster: IGpuCluster;
  view: ViewState;
  trans: TranslationBundle;
}

/** Follows the topic `queues` while it is mounted. */
export function Queues(props: IQueuesProps): JSX.Element {
  const { cluster, view, trans } = props;
  useWatch(cluster, { topics: ['queues'] });
  useCluster(cluster, change => change.topics.has('queues'));
  useSignal(view.changed);
  const [active, setActive] = React.useState<string | null>(null);
  const tree = React.useRef<HTMLDivElement>(null);

  if (!cluster.knows('queues') && !cluster.queues.length) {
    return <Waiting lines={3} trans={trans} />;
  }
  const { closedQueues, openTypes } = view.current;
  const rows = queueRows(
    cluster.queues,
    new Set(closedQueues),
    cluster.status?.gpus ?? 0
  );
  const activeName = rows.some(row => row.queue.name === active)
    ? active
    : rows[0]?.queue.name;
  const go = (name: string | undefined) => {
    if (name !== undefined) {
      setActive(name);
      itemOf(tree.current, name)?.focus();
    }
  };
  const actions: IQueueActions = {
    activate: setActive,
    toggle: name => view.set({ closedQueues: toggled(closedQueues, name) }),
    toggleTypes: name => view.set({ openTypes: toggled(openTypes, name) })
  };
  return (
    <div
      role="tree"
      aria-label={trans.__('Queues')}
      className="jp-gpucluster-queues"
      ref={tree}
      onKeyDown={event =>
        onTreeKey(event, rows, activeName ?? '', closedQueues, actions, go)
      }
    >
      {rows.map(row => (
        <QueueItem
          key={row.queue.name}
          row={row}
          isClosed={closedQueues.includes(row.queue.name)}
          areTypesOpen={openTypes.includes(row.queue.name)}
          isActive={row.queue.name === activeName}
          actions={actions}
          trans={trans}
        />
      ))}
    </div>
  );
}

interface IQueueActions {
  activate: (name: string) => void;
  toggle: (name: string) => void;
  toggleTypes: (name: string) => void;
}

function itemOf(tree: HTMLElement | null, name: string): HTMLElement | null {
  return (
    tree?.querySelector<HTMLElement>(
      `[role="treeitem"][data-queue="${CSS.escape(name)}"]`
    ) ?? null
  );
}

/** The keys of a tree, as the ARIA practices have them. */
function onTreeKey(
  event: React.KeyboardEvent,
  rows: IQueueRow[],
  active: string,
  closed: readonly string[],
  actions: IQueueActions,
  go: (name: string | undefined) => void
): void {
  const at = rows.findIndex(row => row.queue.name === active);
  const row = rows[at];
  if (!row) {
    return;
  }
  const isClosed = closed.includes(active);
  const nameAt = (index: number) => rows[index]?.queue.name;
  switch (event.key) {
    case 'ArrowDown':
      go(nameAt(at + 1));
      break;
    case 'ArrowUp':
      go(nameAt(at - 1));
      break;
    case 'Home':
      go(nameAt(0));
      break;
    case 'End':
      go(nameAt(rows.length - 1));
      break;
    case 'ArrowRight':
      if (row.hasChildren && isClosed) {
        actions.toggle(active);
      } else if (row.hasChildren) {
        go(nameAt(at + 1));
      }
      break;
    case 'ArrowLeft':
      if (row.hasChildren && !isClosed) {
        actions.toggle(active);
      } else if (row.level > 1) {
        go(row.queue.parent ?? undefined);
      }
      break;
    case 'Enter':
    case ' ':
      if (row.types.length) {
        actions.toggleTypes(active);
      }
      break;
    default:
      return;
  }
  event.preventDefault();
}

interface IQueueItemProps {
  row: IQueueRow;
  isClosed: boolean;
  areTypesOpen: boolean;
  isActive: boolean;
  actions: IQueueActions;
  trans: TranslationBundle;
}

function QueueItem(props: IQueueItemProps): JSX.Element {
  const { row, isClosed, areTypesOpen, isActive, actions, trans } = props;
  const { queue, figures } = row;
  const told = explanations(row, trans);
  const tooltip = useTooltip(
    <>
      {queue.description && <p>{queue.description}</p>}
      {told.map(sentence => (
        <p key={sentence}>{sentence}</p>
      ))}
    </>
  );
  const id = React.useId();
  const item = React.useRef<HTMLDivElement>(null);
  const hadTypesOpen = React.useRef(areTypesOpen);
  React.useEffect(() => {
    if (areTypesOpen && !hadTypesOpen.current) {
      item.current?.scrollIntoView?.({ block: 'nearest' });
    }
    hadTypesOpen.current = areTypesOpen;
  }, [areTypesOpen]);
  const isTyped = row.types.length > 0;
  const barred = barredText(row, trans);
  const waiting = waitingText(row, trans);
  return (
    <div
      ref={item}
      role="treeitem"
      data-queue={queue.name}
      className="jp-gpucluster-queue"
      data-barred={barred !== ''}
      style={{ '--jp-gpucluster-level': row.level } as React.CSSProperties}
      aria-level={row.level}
      aria-posinset={row.place}
      aria-setsize={row.siblings}
      aria-expanded={row.hasChildren ? !isClosed : undefined}
      aria-label={joined(
        [
          queueLabel(row, trans),
          ...(areTypesOpen
            ? row.types.map(([type, one]) => typeLabel(type, one, trans))
            : [])
        ],
        ', '
      )}
      aria-describedby={id}
      tabIndex={isActive ? 0 : -1}
      {...tooltip.anchor}
      onFocus={event => {
        actions.activate(queue.name);
        tooltip.anchor.onFocus(event);
      }}
    >
      <div className="jp-gpucluster-queueHead">
        <Twisty
          isShown={row.hasChildren}
          isOpen={!isClosed}
          onClick={() => actions.toggle(queue.name)}
        />
        <span className="jp-gpucluster-name">{queue.name}</span>{' '}
        {waiting && <span className="jp-gpucluster-count">{waiting}</span>}
      </div>{' '}
      <Bar figures={figures} />
      <Figures figures={figures} trans={trans}>
        {isTyped && (
          // For the pointer; the keyboard has Enter on the queue itself. No part of what the queue is called.
          <span
            className="jp-gpucluster-link"
            aria-hidden
            data-label={
              areTypesOpen ? trans.__('hide types') : trans.__('by type')
            }
            onClick={() => actions.toggleTypes(queue.name)}
          />
        )}
      </Figures>{' '}
      {barred && <div className="jp-gpucluster-barred">{barred}</div>}
      {areTypesOpen &&
        row.types.map(([type, one]) => (
          <div key={type} className="jp-gpucluster-type">
            <div className="jp-gpucluster-queueHead">{type}</div>{' '}
            <Bar figures={one} />
            <Figures figures={one} isOfType trans={trans} />{' '}
          </div>
        ))}
      {/* Told as the description alone, not with the contents too. */}
      <span id={id} className="jp-gpucluster-spoken" aria-hidden>
        {[
          queue.description,
          ...told,
          isTyped ? trans.__('Enter shows or hides GPU types.') : ''
        ]
          .filter(Boolean)
          .join(' ')}
      </span>
      {tooltip.node}
    </div>
  );
}

function Twisty(props: {
  isShown: boolean;
  isOpen: boolean;
  onClick: () => void;
}): JSX.Element {
  const { isShown, isOpen, onClick } = props;
  const Caret = isOpen ? caretDownIcon : caretRightIcon;
  return (
    <span
      className="jp-gpucluster-twisty"
      aria-hidden
      onClick={isShown ? onClick : undefined}
    >
      {isShown && <Caret.react tag="span" className="jp-gpucluster-caret" />}
    </span>
  );
}

function Figures(props: {
  figures: IGpuFigures;
  isOfType?: boolean;
  trans: TranslationBundle;
  children?: React.ReactNode;
}): JSX.Element {
  const { figures, isOfType, trans } = props;
  const mine = mineText(figures, trans);
  return (
    <div className="jp-gpucluster-figures">
      <div className="jp-gpucluster-used">
        <span>
          {isOfType ? typeUsedText(figures, trans) : usedText(figures, trans)}
        </span>{' '}
        {mine && <span className="jp-gpucluster-mine">{mine}</span>}
      </div>{' '}
      <div className="jp-gpucluster-free">
        {freeText(figures, trans)} {props.children}
      </div>
    </div>
  );
}

/** For the eye; the words beside it say the same. */
function Bar({ figures }: { figures: IGpuFigures }): JSX.Element {
  const { within, used, guaranteed, mine } = queueBar(figures);
  return (
    <div className="jp-gpucluster-bar" aria-hidden>
      <span
        className="jp-gpucluster-mod-within"
        style={{ width: percent(within) }}
      />
      <span
        className="jp-gpucluster-mod-borrowed"
        style={{ left: percent(within), width: percent(used - within) }}
      />
      {mine > 0 && (
        <span
          className="jp-gpucluster-mod-mine"
          style={{ width: percent(mine) }}
        />
      )}
      {guaranteed !== null && (
        <span
          className="jp-gpucluster-mod-mark"
          style={{ left: percent(guaranteed) }}
        />
      )}
    </div>
  );
}

function percent(fraction: number): string {
  return `${(100 * fraction).toFixed(2)}%`;
}
