/** Shows a job's log in the main area; in Notebook, which has room for one document there, below it. */
import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ICommandPalette,
  IThemeManager,
  MainAreaWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import {
  ITranslator,
  nullTranslator,
  TranslationBundle
} from '@jupyterlab/translation';
import { textEditorIcon } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

/* eslint-disable jupyter/prefer-lazy-imports -- small; the panel itself is loaded with the first log */
import { jobOf } from '../commands/chooseJob';
import { GpuClient } from '../api/client';
import { ILog } from '../model/logFeed';
import { jobTitle, joined } from '../model/words';
/* eslint-enable jupyter/prefer-lazy-imports */
import { CommandIDs, IGpuCluster, IGpuStreams } from '../tokens';
import { toFrontOfTabs } from '../widgets/tabs';
import type { LogPanel } from '../widgets/logPanel';

type LogWidget = MainAreaWidget<LogPanel>;

/** The search of the log in view; its keys stand in schema/plugin.json. */
const SEARCH_LOG = 'gpucluster:search-log';
const NAMESPACE = 'jupyter-gpucluster-log';

export const log: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpucluster:log',
  description: "Shows a job's log in the main area.",
  autoStart: true,
  requires: [IGpuCluster, IGpuStreams],
  optional: [
    ITranslator,
    ILabShell,
    ILayoutRestorer,
    ICommandPalette,
    IThemeManager
  ],
  activate: (
    app: JupyterFrontEnd,
    cluster: IGpuCluster,
    streams: IGpuStreams,
    translator: ITranslator | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    themes: IThemeManager | null
  ) => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpucluster');
    const logs = new Logs(app, cluster, streams, trans, labShell !== null);
    addCommands(app, logs, cluster, trans);
    themes?.themeChanged.connect(() => logs.restyle());
    palette?.addItem({
      command: CommandIDs.openLog,
      category: trans.__('GPU cluster')
    });
    // By the job alone: an address would be dead tomorrow.
    void restorer?.restore(logs.tracker, {
      command: CommandIDs.openLog,
      args: widget => argsOf(widget.content.log),
      name: widget => nameOf(widget.content.log)
    });
  }
};

function addCommands(
  app: JupyterFrontEnd,
  logs: Logs,
  cluster: IGpuCluster,
  trans: TranslationBundle
): void {
  const { commands } = app;
  commands.addCommand(CommandIDs.openLog, {
    label: args =>
      args.job || args.context
        ? trans.__('Open Log')
        : trans.__('Open the Log of a Job…'),
    caption: trans.__('Show what a job writes, live, with follow and search'),
    icon: args => (args.isPalette ? undefined : textEditorIcon),
    describedBy: { args: OPEN_LOG_ARGS },
    execute: async args => {
      const job = await jobOf(app, cluster, args, trans, {
        title: trans.__('Open the log of which job?'),
        includesEnded: true
      });
      return job
        ? logs.open({
            job,
            rank: Number(args.rank ?? 0),
            attempt: args.attempt ? Number(args.attempt) : null
          })
        : null;
    }
  });
  commands.addCommand(SEARCH_LOG, {
    label: trans.__('Find in the Log'),
    caption: trans.__('Find text in the lines of the log in view'),
    isEnabled: () => logs.inFocus() !== null,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => logs.inFocus()?.openSearch()
  });
}

/** All logs that are open on this page: one for each job and rank. */
class Logs {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly cluster: IGpuCluster,
    private readonly streams: IGpuStreams,
    private readonly trans: TranslationBundle,
    private readonly hasMainArea: boolean
  ) {
    const { serverSettings } = app.serviceManager;
    this.client = new GpuClient(serverSettings, trans);
  }

  readonly tracker = new WidgetTracker<LogWidget>({ namespace: NAMESPACE });

  async open(log: ILog): Promise<LogWidget> {
    const found = this.find(log);
    if (found) {
      this.reveal(found);
      if (log.attempt !== null && log.attempt !== found.content.log.attempt) {
        found.content.showFrom('end', { attempt: log.attempt });
      }
      return found;
    }
    const widget = await this.make(log);
    const twin = this.find(log); // asked for twice before it was there
    if (twin) {
      widget.dispose();
      this.reveal(twin);
      return twin;
    }
    this.app.shell.add(widget, this.hasMainArea ? 'main' : 'down');
    await this.tracker.add(widget);
    this.reveal(widget);
    return widget;
  }

  /** The log that has the focus. */
  inFocus(): LogPanel | null {
    const focused = this.tracker.find(widget =>
      widget.node.contains(document.activeElement)
    );
    return focused?.content ?? null;
  }

  restyle(): void {
    this.tracker.forEach(widget => widget.content.restyle());
  }

  private find(log: ILog): LogWidget | undefined {
    return this.tracker.find(
      widget => nameOf(widget.content.log) === nameOf(log)
    );
  }

  private async make(log: ILog): Promise<LogWidget> {
    const [{ LogPanel }, { fillToolbar }, { wholeLog }] = await Promise.all([
      import('../widgets/logPanel'),
      import('../widgets/logToolbar'),
      import('../api/wholeLog')
    ]);
    const { trans, client } = this;
    const settings = this.app.serviceManager.serverSettings;
    const panel = new LogPanel({
      log,
      cluster: this.cluster,
      streams: this.streams,
      trans,
      fetchWhole: ({ job, rank, attempt }, signal, onBytes) => {
        const query = { rank, attempt: attempt ?? undefined };
        const url = client.logUrl(job, query);
        return wholeLog({ url, settings, trans, signal, onBytes });
      }
    });
    const widget = new MainAreaWidget({ content: panel });
    fillToolbar(widget.toolbar, {
      panel,
      onRank: rank => this.changeRank(widget, rank)
    });
    panel.changed.connect(() => this.name(widget));
    this.name(widget);
    return widget;
  }

  /** The one that shows this rank already, or else this one. */
  private changeRank(widget: LogWidget, rank: number): void {
    const panel = widget.content;
    const twin = this.find({ ...panel.log, rank });
    if (twin) {
      this.reveal(twin);
    } else {
      panel.showFrom('end', { rank });
      this.name(widget);
      void this.tracker.save(widget);
    }
  }

  private name(widget: LogWidget): void {
    const { trans } = this;
    const { job, log } = widget.content;
    widget.id = `jp-gpucluster-log-${nameOf(log).replace(':', '-')}`;
    widget.title.icon = textEditorIcon;
    widget.title.closable = true;
    const rank =
      (job?.tasks ?? 1) > 1 ? trans.__('rank %1', log.rank) : undefined;
    widget.title.label = job
      ? joined([trans.__('Log %1 %2', job.number, job.name), rank])
      : trans.__('Log');
    widget.title.caption = job
      ? joined([trans.__('Log of %1', jobTitle(job, trans)), rank])
      : trans.__('Log of a job');
  }

  private reveal(widget: LogWidget): void {
    this.app.shell.activateById(widget.id);
    if (!this.hasMainArea && toFrontOfTabs(widget)) {
      widget.activate();
    }
  }

  private readonly client: GpuClient;
}

function nameOf(log: ILog): string {
  return `${log.job}:${log.rank}`;
}

function argsOf(log: ILog): ReadonlyPartialJSONObject {
  return { ...log };
}

const OPEN_LOG_ARGS: CommandRegistry.Description['args'] = {
  type: 'object',
  properties: {
    job: { type: 'string', description: 'The long id of the job.' },
    rank: { type: 'number', description: 'Which task; 0 by default.' },
    attempt: {
      type: ['number', 'null'],
      description: 'One attempt alone; by default all of them.'
    }
  }
};
