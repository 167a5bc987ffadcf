/** One node of the topology: its name, and its GPUs as boxes in switches in sockets. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import {
  busyStep,
  IGpuBox,
  INodeTree,
  isIdle,
  isInUse,
  ISocket,
  isOpen,
  jobColor
} from '../model/topology';
import { gpuLines } from '../model/topologyLayout';
import {
  freeText,
  gpuText,
  gpuTypes,
  healthLabel,
  ILevels,
  islandText,
  kindLabel,
  memoryShort,
  nodeNotes,
  nodeText,
  setSince
} from '../model/topologyWords';
import { SimulatedBadge } from '../widgets/simulatedBadge';

/** How much room there is for a node: a line of the sidebar, a small card, or a card that tells all. */
export type Room = 'line' | 'dense' | 'roomy';

export interface INodeProps {
  tree: INodeTree;
  room: Room;
  /** Place among all rows of the grid, from 1. */
  rowIndex: number;
  /** The box that the keyboard is on: -1 the node itself; null = none here. */
  active: number | null;
  /** The job to show up, where it is on this node. */
  lit: number | null;
  /** Some nodes are simulated and some are not: each says it. */
  isMixed: boolean;
  names: ILevels;
  trans: TranslationBundle;
}

/** Drawn anew only when something of it changes: its tree is the same as long as the view of the node is. */
export const TopologyNode = React.memo(function TopologyNode(
  props: INodeProps
): JSX.Element {
  const { tree, room, trans } = props;
  const notes = nodeNotes(tree, trans);
  const health = isOpen(tree.node)
    ? ''
    : ` jp-gpucluster-mod-${tree.node.health}`;
  return (
    <div
      role="row"
      aria-rowindex={props.rowIndex}
      className={`jp-gpucluster-topologyNode${health}`}
    >
      <NodeHead {...props} />
      <div className="jp-gpucluster-topologyLines">
        {gpuLines(tree).map((sockets, at) => (
          <div key={at} className="jp-gpucluster-topologyGpuLine">
            {sockets.map(socket => (
              <Socket
                key={socket.number}
                socket={socket}
                next={sockets[sockets.indexOf(socket) + 1]}
                {...props}
              />
            ))}
          </div>
        ))}
      </div>
      {room === 'line' && <FreeCount tree={tree} trans={trans} />}
      {notes.length > 0 && (
        <div
          className="jp-gpucluster-topologyNodeNote"
          title={[...notes, setSince(tree.node, trans)]
            .filter(Boolean)
            .join('\n')}
        >
          {notes.join(' · ')}
        </div>
      )}
    </div>
  );
});

function NodeHead(props: INodeProps): JSX.Element {
  const { tree, room, active, names, trans } = props;
  const { node } = tree;
  const health = healthLabel(node, trans);
  return (
    <div
      role="rowheader"
      className="jp-gpucluster-topologyNodeHead"
      tabIndex={active === -1 ? 0 : -1}
      aria-label={nodeText(tree, names, trans)}
      data-node={node.name}
      data-box={-1}
    >
      <span className="jp-gpucluster-topologyNodeName">
        <bdi>{node.name}</bdi>
      </span>
      {room === 'roomy' && (
        <span className="jp-gpucluster-topologyNodeTypes">
          {gpuTypes(tree)}
        </span>
      )}
      {room === 'roomy' && health && (
        <span className="jp-gpucluster-badge">{health}</span>
      )}
      {props.isMixed && node.simulated && room !== 'line' && (
        <SimulatedBadge trans={trans} />
      )}
      {room !== 'line' && <FreeCount tree={tree} trans={trans} />}
    </div>
  );
}

function FreeCount(props: {
  tree: INodeTree;
  trans: TranslationBundle;
}): JSX.Element {
  const { counts, boxes } = props.tree;
  const text = boxes.length
    ? freeText(counts.free, boxes.length, props.trans)
    : props.trans.__('no GPUs');
  return (
    <span
      aria-hidden="true" // the row's heading says it
      className={`jp-gpucluster-topologyNodeFree${counts.free ? '' : ' jp-gpucluster-mod-none'}`}
      title={text}
    >
      <span className="jp-gpucluster-topologyShort">{counts.free}</span>
      <span className="jp-gpucluster-topologyLong">{text}</span>
    </span>
  );
}

function Socket(
  props: INodeProps & { socket: ISocket; next: ISocket | undefined }
): JSX.Element {
  const { socket, next, names } = props;
  const size = socket.switches.reduce(
    (sum, { boxes }) => sum + boxes.length,
    0
  );
  return (
    <div
      className="jp-gpucluster-topologySocket"
      style={{ flexGrow: size }}
      data-label={`${names.socket} ${socket.number}`}
    >
      {socket.switches.map(({ number, boxes }, at) => (
        <div
          key={number}
          className="jp-gpucluster-topologySwitch"
          style={{ flexGrow: boxes.length }}
          data-label={`${names.switch} ${number}`}
        >
          {boxes.map((box, place) => (
            <Gpu
              key={box.gpu.uuid}
              {...props}
              box={box}
              link={link(
                box,
                boxes[place + 1],
                socket.switches[at + 1]?.boxes[0],
                next?.switches[0].boxes[0],
                props.tree.boxes[props.tree.boxes.indexOf(box) + 1]
              )}
            />
          ))}
        </div>
      ))}
    </div>
  );
}

/** Across which gap the line of an NVLink island goes on behind a GPU; null = it ends here. */
function link(
  box: IGpuBox,
  inSwitch: IGpuBox | undefined,
  inSocket: IGpuBox | undefined,
  inLine: IGpuBox | undefined,
  inNode: IGpuBox | undefined
): 'gpu' | 'switch' | 'socket' | 'line' | null {
  const next = inSwitch ?? inSocket ?? inLine ?? inNode;
  if (box.island < 0 || next?.island !== box.island) {
    return null;
  }
  return inSwitch ? 'gpu' : inSocket ? 'switch' : inLine ? 'socket' : 'line';
}

function Gpu(
  props: INodeProps & { box: IGpuBox; link: ReturnType<typeof link> }
): JSX.Element {
  const { box, tree, room, active, lit, names, trans } = props;
  const { gpu, island } = box;
  const place = tree.boxes.indexOf(box);
  const text = gpuText(tree, box, names, trans);
  const isLit = lit !== null && gpu.job_number === lit;
  return (
    <div
      role="gridcell"
      className={classes(tree, place, isLit, props.link)}
      style={variables(box)}
      tabIndex={active === place ? 0 : -1}
      aria-label={room === 'roomy' ? undefined : text}
      aria-selected={isLit}
      data-node={tree.node.name}
      data-box={place}
    >
      {room === 'roomy' && <Tile box={box} text={text} trans={trans} />}
      {room === 'roomy' && island >= 0 && isFirstOfRun(tree, place) && (
        <span className="jp-gpucluster-topologyIslandName" aria-hidden="true">
          {islandText(tree.islands[island], trans)}
        </span>
      )}
    </div>
  );
}

function isFirstOfRun(tree: INodeTree, place: number): boolean {
  return tree.boxes[place - 1]?.island !== tree.boxes[place].island;
}

function classes(
  tree: INodeTree,
  place: number,
  isLit: boolean,
  joined: ReturnType<typeof link>
): string {
  const { gpu, kind, island } = tree.boxes[place];
  const isMeasured = gpu.utilization_percent !== null;
  return [
    'jp-gpucluster-topologyGpu',
    `jp-gpucluster-mod-${kind}`,
    isLit && 'jp-gpucluster-mod-lit',
    isInUse(gpu) && 'jp-gpucluster-mod-held',
    isIdle(gpu) && 'jp-gpucluster-mod-idle',
    isMeasured
      ? `jp-gpucluster-mod-step${busyStep(gpu.utilization_percent ?? 0)}`
      : 'jp-gpucluster-mod-unmeasured',
    island >= 0 && 'jp-gpucluster-mod-island',
    island >= 0 && isFirstOfRun(tree, place) && 'jp-gpucluster-mod-runStart',
    island >= 0 &&
      tree.isInterleaved &&
      `jp-gpucluster-mod-island${island % 3}`,
    joined && `jp-gpucluster-mod-join-${joined}`
  ]
    .filter(Boolean)
    .join(' ');
}

function variables({ gpu }: IGpuBox): React.CSSProperties {
  const found: Record<string, string> = {};
  if (gpu.job_number !== null) {
    found['--jp-gpucluster-job'] = jobColor(gpu.job_number);
  }
  if (gpu.utilization_percent !== null) {
    found['--jp-gpucluster-busy'] = `${gpu.utilization_percent}%`;
  }
  return found as React.CSSProperties;
}

/** What stands in a GPU's box where there is room. */
function Tile(props: {
  box: IGpuBox;
  text: string;
  trans: TranslationBundle;
}): JSX.Element {
  const { box, trans } = props;
  const { gpu, kind } = box;
  const isKnown = gpu.job_number !== null;
  return (
    <>
      <span className="jp-gpucluster-spoken">{props.text}</span>
      <div className="jp-gpucluster-topologyTile" aria-hidden="true">
        <span className="jp-gpucluster-topologyTileHead">
          <b>{gpu.index}</b>
          {isKnown && <span>#{gpu.job_number}</span>}
        </span>
        <span className="jp-gpucluster-topologyTileName">
          {isKnown ? gpu.job_name : kindLabel(kind, trans)}
        </span>
        <span className="jp-gpucluster-topologyTileUsage">
          <span className="jp-gpucluster-topologyTileBar">
            <span />
          </span>
          <span>
            {gpu.utilization_percent === null
              ? '–'
              : trans.__('%1 %', gpu.utilization_percent)}
          </span>
        </span>
        <span className="jp-gpucluster-topologyTileMemory">
          {gpu.memory_used_bytes === null
            ? ''
            : memoryShort(gpu.memory_used_bytes, gpu.memory_bytes)}
        </span>
      </div>
    </>
  );
}
