/** The panel in the left area: the cluster in a line, and the sections Queues, Topology and Jobs. */
import { IStateDB } from '@jupyterlab/statedb';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import * as React from 'react';

import { LiveStatus } from '../api/schemas';
import { Scope } from '../model/jobList';
import { SectionName, toggled, ViewState } from '../model/viewState';
import { joined } from '../model/words';
import { IGpuCluster } from '../tokens';
import { SimulatedBadge } from '../widgets/simulatedBadge';
import { Banner, useTrouble, Waiting } from './connection';
import { Shown, useCluster, useSignal, useWatch } from './hooks';
import { Commands } from './jobActions';
import { Jobs } from './jobs';
import { Queues } from './queues';
import { Section } from './section';
import { Topology } from './topology';

export interface ISidebarProps {
  cluster: IGpuCluster;
  commands: Commands;
  view: ViewState;
  trans: TranslationBundle;
}

/** The panel, as it was left. */
export async function openSidebar(
  options: Omit<ISidebarProps, 'view'> & {
    stateDB: IStateDB | null;
    /** Whose jobs are listed at first. */
    jobsShown: Scope;
  }
): Promise<Sidebar> {
  const { stateDB, jobsShown, ...others } = options;
  const view = new ViewState(stateDB, { scope: jobsShown });
  await view.restore();
  return new Sidebar({ ...others, view });
}

/** Lab's widget around the panel. While it is hidden it asks for nothing. */
export class Sidebar extends ReactWidget {
  constructor(private readonly props: ISidebarProps) {
    super();
    this.addClass('jp-gpucluster-sidebar');
  }

  protected render(): JSX.Element {
    return <WhileVisible widget={this} {...this.props} />;
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.shown.emit();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.shown.emit();
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.shown.emit();
  }

  /** It was shown or hidden: `isVisible` says which. */
  readonly shown = new Signal<this, void>(this);
}

function WhileVisible(props: ISidebarProps & { widget: Sidebar }): JSX.Element {
  const { widget, ...others } = props;
  useSignal(widget.shown);
  return (
    <Shown.Provider value={widget.isVisible}>
      <SidebarView {...others} />
    </Shown.Provider>
  );
}

/** Follows the topic `status`; each section follows its own while it is open. */
export function SidebarView(props: ISidebarProps): JSX.Element {
  const { cluster, commands, view, trans } = props;
  useWatch(cluster, { topics: ['status'] });
  useCluster(cluster, change => change.topics.has('status'));
  useSignal(view.changed);
  const { trouble, nowMs } = useTrouble(cluster);
  const { status } = cluster;
  const { closedSections, heights } = view.current;

  const section = (id: SectionName, title: string, summary: string) => ({
    id,
    title,
    summary,
    isOpen: !closedSections.includes(id),
    onToggle: () => view.set({ closedSections: toggled(closedSections, id) }),
    height: heights[id],
    trans
  });
  const onHeight = (id: SectionName) => (height: number | undefined) =>
    view.set({ heights: { ...heights, [id]: height } });
  return (
    <>
      <Header status={status} trans={trans} />
      {trouble && (
        <Banner
          cluster={cluster}
          trouble={trouble}
          nowMs={nowMs}
          trans={trans}
        />
      )}
      <div className="jp-gpucluster-sections" data-stale={trouble !== null}>
        <Section
          {...section('queues', trans.__('Queues'), '')}
          onHeight={onHeight('queues')}
        >
          <Queues cluster={cluster} view={view} trans={trans} />
        </Section>
        <Section
          {...section('topology', trans.__('Topology'), '')}
          onHeight={onHeight('topology')}
        >
          <Topology
            cluster={cluster}
            commands={commands}
            layout="narrow"
            trans={trans}
          />
        </Section>
        <Section
          {...section(
            'jobs',
            trans.__('Jobs'),
            jobsSummary(status, view.current.scope, trans)
          )}
        >
          <Jobs
            cluster={cluster}
            commands={commands}
            view={view}
            trans={trans}
          />
        </Section>
      </div>
    </>
  );
}

function Header(props: {
  status: LiveStatus | null;
  trans: TranslationBundle;
}): JSX.Element {
  const { status, trans } = props;
  return (
    <div className="jp-gpucluster-header">
      <h2>
        {status
          ? trans.__('GPU cluster %1', status.cluster)
          : trans.__('GPU cluster')}
      </h2>
      {status ? (
        <>
          <p>
            {clusterText(status, trans)}{' '}
            {status.simulated && <SimulatedBadge trans={trans} />}
          </p>
          {status.notes.map(note => (
            <p key={note} className="jp-gpucluster-note">
              {note}
            </p>
          ))}
        </>
      ) : (
        <Waiting lines={1} trans={trans} />
      )}
    </div>
  );
}

/** "12 of 32 GPUs in use · 4 nodes" */
function clusterText(status: LiveStatus, trans: TranslationBundle): string {
  const sick = status.gpus - status.gpus_healthy;
  return joined([
    trans._n(
      '%2 of %1 GPU in use',
      '%2 of %1 GPUs in use',
      status.gpus,
      status.gpus_used
    ),
    trans._n('%1 node', '%1 nodes', status.nodes),
    sick > 0
      ? trans._n('%1 GPU not healthy', '%1 GPUs not healthy', sick)
      : null
  ]);
}

/** Of the jobs that the list has; "" when there are none. */
function jobsSummary(
  status: LiveStatus | null,
  scope: Scope,
  trans: TranslationBundle
): string {
  const isMine = scope === 'mine';
  const running = isMine ? status?.my_running : status?.running;
  const waiting = isMine ? status?.my_waiting : status?.waiting;
  return joined([
    running ? trans.__('%1 running', running) : null,
    waiting ? trans.__('%1 waiting', waiting) : null
  ]);
}
