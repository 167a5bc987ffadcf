/** The list of jobs: mine or all, filtered, with what each is doing and what can be done with it. */
import { Clipboard } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Announcer } from '../model/announcer';
import { listRows, Scope } from '../model/jobList';
import { toggled, ViewState } from '../model/viewState';
import { isEnded } from '../model/words';
import { IGpuCluster } from '../tokens';
import { Button } from '../widgets/button';
import { Waiting } from './connection';
import { Shown, useCluster, useSignal, useThrottled, useWatch } from './hooks';
import { Commands, useJobActions } from './jobActions';
import { JobGrid } from './jobGrid';

/** At most so many single jobs are asked for in every detail. */
const MOST_WATCHED = 100;
/** Scrolling asks for other jobs at most this often. */
const SETTLE_MS = 300;
const ANNOUNCE_MS = 1000;

export interface IJobsProps {
  cluster: IGpuCluster;
  commands: Commands;
  view: ViewState;
  trans: TranslationBundle;
}

/** Follows the topic `mine` or `jobs`, and the jobs in view one by one, while it is mounted. */
export function Jobs(props: IJobsProps): JSX.Element {
  const { cluster, commands, view, trans } = props;
  useSignal(view.changed);
  const { scope, filter, closedGroups } = view.current;
  const topic = scope === 'mine' ? 'mine' : 'jobs';
  const [inView, setInView] = React.useState('');
  const watched = useThrottled(inView, SETTLE_MS);
  useWatch(cluster, {
    topics: [topic],
    jobs: ids(watched).slice(0, MOST_WATCHED).sort()
  });
  useEarlierSteps(cluster, watched);
  useCluster(
    cluster,
    change => change.topics.has(topic) || change.jobs.size > 0
  );
  const [state, actions] = useJobActions(cluster, commands);
  const { jobs } = cluster;
  const older = cluster.jobsLeftOut;
  const rows = React.useMemo(
    () =>
      listRows(
        jobs,
        { scope, text: filter },
        new Set(closedGroups),
        older,
        trans
      ),
    [jobs, scope, filter, closedGroups, older, trans]
  );

  const isKnown = cluster.knows(topic) || rows.length > 0;
  return (
    <div className="jp-gpucluster-jobList">
      <Toolbar view={view} trans={trans} />
      {!isKnown ? (
        <Waiting lines={4} trans={trans} />
      ) : rows.length ? (
        <JobGrid
          rows={rows}
          scope={scope}
          cluster={cluster}
          state={state}
          actions={actions}
          onToggleGroup={group =>
            view.set({ closedGroups: toggled(closedGroups, group) })
          }
          onView={setInView}
          trans={trans}
        />
      ) : (
        <Nothing view={view} trans={trans} />
      )}
      <Announcements cluster={cluster} trans={trans} />
    </div>
  );
}

function ids(joined: string): string[] {
  return joined.split(' ').filter(Boolean);
}

/** The course of a metric begins where the job began, not where somebody looked. */
function useEarlierSteps(cluster: IGpuCluster, watched: string): void {
  const isShown = React.useContext(Shown);
  React.useEffect(() => {
    if (!isShown) {
      return;
    }
    for (const id of ids(watched)) {
      const job = cluster.job(id);
      if (job?.progress && job.can_read && !isEnded(job.state)) {
        void cluster.loadSteps(id);
      }
    }
  }, [cluster, watched, isShown]);
}

function Toolbar(props: {
  view: ViewState;
  trans: TranslationBundle;
}): JSX.Element {
  const { view, trans } = props;
  const { scope, filter } = view.current;
  const choice = (value: Scope, label: string) => (
    <button
      type="button"
      aria-pressed={scope === value}
      onClick={() => view.set({ scope: value })}
    >
      {label}
    </button>
  );
  return (
    <div className="jp-gpucluster-toolbar">
      <div
        role="group"
        aria-label={trans.__('Whose jobs')}
        className="jp-gpucluster-choice"
      >
        {choice('mine', trans.__('Mine'))}
        {choice('all', trans.__('All'))}
      </div>
      <input
        type="search"
        className="jp-gpucluster-filter"
        aria-label={trans.__('Filter jobs')}
        placeholder={trans.__('Filter')}
        title={trans.__('By name, number (#12), queue, owner or state')}
        value={filter}
        spellCheck={false}
        onChange={event => view.set({ filter: event.target.value })}
      />
    </div>
  );
}

/** Nothing to list: why, and what to do. */
function Nothing(props: {
  view: ViewState;
  trans: TranslationBundle;
}): JSX.Element {
  const { view, trans } = props;
  const { scope, filter } = view.current;
  if (filter.trim()) {
    return (
      <div className="jp-gpucluster-nothing">
        <p>
          {scope === 'mine'
            ? trans.__('No job of yours matches “%1”.', filter.trim())
            : trans.__('No job matches “%1”.', filter.trim())}
        </p>
        <Button onClick={() => view.set({ filter: '' })}>
          {trans.__('Clear the filter')}
        </Button>{' '}
        {scope === 'mine' && (
          <Button onClick={() => view.set({ scope: 'all' })}>
            {trans.__('Look in all jobs')}
          </Button>
        )}
      </div>
    );
  }
  return (
    <div className="jp-gpucluster-nothing">
      <p>
        {scope === 'mine'
          ? trans.__('You have no jobs yet.')
          : trans.__('There are no jobs yet.')}
      </p>
      <p>{trans.__('Once in a notebook:')}</p>
      <Code text="%load_ext jupyter_gpucluster" trans={trans} />
      <p>{trans.__('Then on top of a cell:')}</p>
      <Code text="%%submit --gpus 1" trans={trans} />
    </div>
  );
}

function Code(props: { text: string; trans: TranslationBundle }): JSX.Element {
  const { text, trans } = props;
  return (
    <div className="jp-gpucluster-code">
      <code>{text}</code>
      <button
        type="button"
        className="jp-gpucluster-iconButton"
        aria-label={trans.__('Copy %1', text)}
        title={trans.__('Copy')}
        onClick={() => Clipboard.copyToSystem(text)}
      >
        <copyIcon.react tag="span" />
      </button>
    </div>
  );
}

/** What a screen reader is told, at most once a second. */
function Announcements(props: {
  cluster: IGpuCluster;
  trans: TranslationBundle;
}): JSX.Element {
  const { cluster, trans } = props;
  const isShown = React.useContext(Shown);
  const [text, setText] = React.useState('');
  React.useEffect(() => {
    if (!isShown) {
      return;
    }
    const announcer = new Announcer(trans);
    let timer: ReturnType<typeof setTimeout> | null = null;
    const tell = () => {
      timer = null;
      if (announcer.hasNews) {
        setText(announcer.take());
        timer = setTimeout(tell, ANNOUNCE_MS);
      }
    };
    const see = () => {
      if (cluster.knows('mine') || cluster.knows('jobs')) {
        announcer.see(cluster.jobs);
        if (timer === null) {
          tell();
        }
      }
    };
    see();
    cluster.changed.connect(see);
    return () => {
      cluster.changed.disconnect(see);
      if (timer !== null) {
        clearTimeout(timer);
      }
    };
  }, [cluster, trans, isShown]);
  return (
    <div role="status" aria-live="polite" className="jp-gpucluster-spoken">
      {text}
    </div>
  );
}
