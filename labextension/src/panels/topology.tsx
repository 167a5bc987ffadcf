/** The topology: racks, nodes, sockets, switches and GPUs as nested boxes; who holds what, and how busy it is. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { GpuView } from '../api/schemas';
import { Highlight, highlight as shared } from '../model/highlight';
import { IJobOnGpus, ITopology, topology } from '../model/topology';
import {
  TopologyChoice,
  topologyChoice,
  TopologyValues
} from '../model/topologyChoice';
import {
  filtered,
  GAPS,
  IPlace,
  Row,
  rows,
  widestLine
} from '../model/topologyLayout';
import { ILevels, levels } from '../model/topologyWords';
import { CommandIDs, IGpuCluster } from '../tokens';
import { useCluster, useSignal, useWatch } from './hooks';
import { canOpenLog, TopologyDetail } from './topologyDetail';
import { TopologyGrid } from './topologyGrid';
import { TopologyHead } from './topologyHead';

import { TopologyJobs, TopologyLegend } from './topologyLegend';
import { Room } from './topologyNode';
import { IRovingTarget } from './topologyRoving';
import { useWidth } from './width';

export interface ITopologyProps {
  cluster: IGpuCluster;
  trans: TranslationBundle;
  commands: JupyterFrontEnd['commands'];
  layout: 'narrow' | 'wide';
  /** The job that is shown up here and elsewhere; by default that of the page. */
  highlight?: Highlight;
  choice?: TopologyChoice;
}

/** With more nodes than these there is a box to filter them, and the large view begins with small cards. */
const FEW_NODES = 8;
/** Widths in pixels that a card of a node takes at least, and what is beside the cards. */
const CARD_WIDTHS = { dense: 200, roomy: 580 } as const;
const MARGINS = 32;

/** Follows the topic `nodes` while it is mounted. */
export function Topology(props: ITopologyProps): JSX.Element {
  const { cluster, trans, layout } = props;
  const { highlight = shared, choice = topologyChoice } = props;
  const root = React.useRef<HTMLElement>(null);
  const width = useWidth(root);
  useSignal(highlight.changed);
  useSignal(choice.changed);
  const [filter, setFilter] = React.useState('');
  const { whole, names } = useTopology(cluster, trans);
  const pinned = whole.jobs.find(job => job.number === highlight.pinned);
  useWatch(cluster, {
    topics: ['nodes', 'status'],
    jobs: pinned?.id ? [pinned.id] : []
  });
  const room = roomFor(layout, choice.values, whole.nodes);
  const columns = columnsFor(room, width, whole);
  const isLarge = whole.nodes > FEW_NODES;
  const wanted = isLarge ? filter : '';
  const shown = React.useMemo(
    () => rows(filtered(whole.racks, wanted), columns),
    [whole, wanted, columns]
  );
  const style = React.useMemo(() => sizes(room, shown), [room, shown]);
  const { target, pointed } = usePointing(props, highlight, whole);
  const isMeasured = whole.usage.notMeasured < whole.gpus;
  const common = { whole, names, choice, room, highlight };
  return (
    <section
      ref={root}
      style={style}
      className={[
        'jp-gpucluster-topology',
        `jp-gpucluster-mod-${layout}`,
        `jp-gpucluster-mod-${room}`,
        `jp-gpucluster-mod-by-${choice.values.colourBy}`,
        isMeasured ? 'jp-gpucluster-mod-measured' : ''
      ].join(' ')}
    >
      <TopologyHead
        {...props}
        {...common}
        filter={isLarge ? filter : null}
        onFilter={setFilter}
      />
      {shown.length ? (
        <TopologyGrid
          rows={shown}
          room={room}
          columns={columns}
          isMeasured={isMeasured}
          isMixed={whole.simulatedGpus > 0 && whole.simulatedGpus < whole.gpus}
          lit={litJob(whole, highlight)}
          label={trans.__('GPUs by node')}
          names={names}
          trans={trans}
          target={target}
        />
      ) : (
        <p className="jp-gpucluster-topologyNothing">
          {nothingText(cluster, whole, wanted, trans)}
        </p>
      )}
      {whole.nodes > 0 && (
        <Foot {...props} {...common} pointed={pointed} pinned={pinned} />
      )}
    </section>
  );
}

/** What the colours mean, and what there is to tell at present. */
function Foot(
  props: ITopologyProps & {
    whole: ITopology;
    names: ILevels;
    choice: TopologyChoice;
    highlight: Highlight;
    pointed: IPlace | null;
    pinned: IJobOnGpus | undefined;
  }
): JSX.Element {
  const { whole, choice, highlight, pointed, pinned, layout, trans } = props;
  const isTelling = pointed !== null || pinned !== undefined;
  const isWide = layout === 'wide';
  return (
    <footer className={isTelling ? 'jp-gpucluster-mod-telling' : ''}>
      <TopologyLegend
        topology={whole}
        colourBy={choice.values.colourBy}
        trans={trans}
      />
      {isWide && (
        <TopologyJobs jobs={whole.jobs} highlight={highlight} trans={trans} />
      )}
      <TopologyDetail
        {...props}
        tree={whole.byName.get(pointed?.node ?? '')}
        place={pointed}
      />
      {isWide && !isTelling && (
        <p className="jp-gpucluster-topologyHint">
          {trans.__(
            'Point at a GPU, or walk with the arrow keys. A click shows up its job.'
          )}
        </p>
      )}
    </footer>
  );
}

/** The job to show up, if it is on any GPU: else nothing would stand out of what is dimmed. */
function litJob(whole: ITopology, highlight: Highlight): number | null {
  return whole.jobs.some(job => job.number === highlight.job)
    ? highlight.job
    : null;
}

function useTopology(
  cluster: IGpuCluster,
  trans: TranslationBundle
): { whole: ITopology; names: ILevels } {
  useCluster(
    cluster,
    change =>
      change.connection ||
      change.topics.has('nodes') ||
      change.topics.has('status') ||
      change.jobs.size > 0
  );
  const { nodes } = cluster;
  const whole = React.useMemo(() => topology(nodes), [nodes]);
  const named = cluster.status?.levels.join('\n');
  const names = React.useMemo(
    () => levels(named?.split('\n'), trans),
    [named, trans]
  );
  return { whole, names };
}

function roomFor(
  layout: ITopologyProps['layout'],
  choice: TopologyValues,
  nodes: number
): Room {
  if (layout === 'narrow') {
    return 'line';
  }
  const size =
    choice.topologySize === 'auto'
      ? nodes > FEW_NODES
        ? 'small'
        : 'large'
      : choice.topologySize;
  return size === 'large' ? 'roomy' : 'dense';
}

/** Sides in pixels of the squares that stand for GPUs. */
const SQUARES = { line: 13, dense: 18, roomy: 0 } as const;

/** What the style sheet needs to know of the layout. */
function sizes(room: Room, shown: readonly Row[]): React.CSSProperties {
  const square = SQUARES[room];
  return {
    '--jp-gpucluster-square': `${square}px`,
    '--jp-gpucluster-gap-gpu': `${GAPS.gpu}px`,
    '--jp-gpucluster-gap-switch': `${GAPS.switch}px`,
    '--jp-gpucluster-gap-socket': `${GAPS.socket}px`,
    '--jp-gpucluster-line': `${widestLine(shown, square)}px`
  } as React.CSSProperties;
}

/** As many columns as there is room for, or fewer when the largest rack has no more rows by that: then the last is fuller. */
function columnsFor(room: Room, width: number, whole: ITopology): number {
  if (room === 'line') {
    return 1;
  }
  const most = Math.max(1, Math.floor((width - MARGINS) / CARD_WIDTHS[room]));
  const largest = Math.max(1, ...whole.racks.map(rack => rack.nodes.length));
  return Math.ceil(largest / Math.ceil(largest / most));
}

/** What pointer and keyboard are on, and what comes of clicks and keys. */
function usePointing(
  { cluster, commands }: ITopologyProps,
  highlight: Highlight,
  whole: ITopology
): { target: IRovingTarget; pointed: IPlace | null } {
  const [hovered, onHover] = React.useState<IPlace | null>(null);
  const [focused, onFocus] = React.useState<IPlace | null>(null);
  const pointed = hovered ?? focused;
  const latest = React.useRef(whole);
  latest.current = whole;
  const job = pointed && gpuAt(whole, pointed)?.job_number;
  React.useEffect(() => {
    highlight.hover(job ?? null);
    return () => highlight.hover(null);
  }, [highlight, job]);
  const target = React.useMemo(
    (): IRovingTarget => ({
      onHover,
      onFocus,
      onPick: place =>
        highlight.toggle(gpuAt(latest.current, place)?.job_number ?? null),
      onOpen: place => {
        const gpu = gpuAt(latest.current, place);
        if (gpu && canOpenLog(gpu.job_id, gpu.mine, cluster)) {
          void commands.execute(CommandIDs.openLog, { job: gpu.job_id });
        } else {
          highlight.pin(gpu?.job_number ?? null);
        }
      },
      onEscape: () => highlight.pin(null)
    }),
    [highlight, cluster, commands]
  );
  return { target, pointed };
}

function gpuAt(whole: ITopology, place: IPlace): GpuView | undefined {
  return whole.byName.get(place.node)?.boxes[place.box]?.gpu;
}

function nothingText(
  cluster: IGpuCluster,
  whole: ITopology,
  filter: string,
  trans: TranslationBundle
): string {
  if (!cluster.knows('nodes')) {
    return trans.__('Not known yet.');
  }
  return whole.nodes
    ? trans.__('No node matches “%1”.', filter)
    : trans.__('The cluster has no nodes.');
}
