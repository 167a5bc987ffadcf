/** The log of one rank of a job: who it is of, how it stands, and the text. */
import { Clipboard } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { PanelLayout, Widget } from '@lumino/widgets';
import * as React from 'react';

import { HistoryView, JobView, StreamItem } from '../api/schemas';
import { IStreams } from '../api/streams';
import { ILog, LogFeed } from '../model/logFeed';
import { attemptEnding, LogText } from '../model/logText';
import { isEnded, US_PER_MS } from '../model/words';
import { IClusterChange, IGpuCluster, IWatch } from '../tokens';
import { sentenceOf } from './cancelButton';
import { LogEnd } from './logEnd';
import { LogHeader } from './logHeader';
import { LogSearch } from './logSearch';
import { LogTerminal } from './logTerminal';

/** How far the download of the whole log is; null while there is none. */
export interface IDownload {
  bytes: number;
  stop(): void;
}

export interface ILogPanelOptions {
  log: ILog;
  cluster: IGpuCluster;
  streams: IStreams;
  trans: TranslationBundle;
  /** A file of the whole log, or null when it was stopped. Raises ApiError. */
  fetchWhole(
    log: ILog,
    signal: AbortSignal,
    onBytes: (bytes: number) => void
  ): Promise<Blob>;
}

export class LogPanel extends Widget {
  constructor(private readonly options: ILogPanelOptions) {
    super();
    this.addClass('jp-gpucluster-log');
    this.feed = new LogFeed(options.streams, options.log, {
      sink: {
        write: text => this.terminal?.write(text) ?? Promise.resolve(),
        clear: () => this.terminal?.clear()
      },
      text: () => new LogText(this.trans, attempt => this.ending(attempt)),
      prepare: items => this.prepare(items),
      writing: () => this.writing(),
      isFollowing: () => this.terminal?.isFollowing ?? true
    });
    this.feed.changed.connect(this.onFeed, this);
    this.cluster.changed.connect(this.onCluster, this);
    this.screen.addClass('jp-gpucluster-logScreen');
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(ReactWidget.create(<LogHeader panel={this} />));
    layout.addWidget(ReactWidget.create(<LogSearch panel={this} />));
    layout.addWidget(this.screen);
    layout.addWidget(ReactWidget.create(<LogEnd panel={this} />));
  }

  readonly feed: LogFeed;

  /** Something that is shown has changed; at most once a frame. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get trans(): TranslationBundle {
    return this.options.trans;
  }

  get cluster(): IGpuCluster {
    return this.options.cluster;
  }

  get log(): ILog {
    return this.feed.log;
  }

  get job(): JobView | undefined {
    return this.cluster.job(this.log.job) ?? this.lastJob;
  }

  /** Null until it is loaded. */
  get terminal(): LogTerminal | null {
    return this._terminal;
  }

  get download(): IDownload | null {
    return this._download;
  }

  /** Why a download or the terminal itself failed. */
  get problem(): string | null {
    return this._problem;
  }

  get isSearching(): boolean {
    return this._isSearching;
  }

  // ---- what the user asks for

  showFrom(place: 'start' | 'end', log: Partial<ILog> = {}): void {
    const { terminal } = this;
    if (terminal) {
      terminal.isFollowing = place === 'end';
      terminal.isPaging = place === 'start';
      terminal.focus();
    }
    this.history = null;
    this.feed.restart(place, log);
    this.tell();
  }

  /** Who follows where the text is behind what was written begins anew at its end. */
  follow(follow: boolean): void {
    const { terminal } = this;
    if (follow && terminal?.isHolding) {
      this.showFrom('end');
    } else if (terminal) {
      terminal.isFollowing = follow;
    }
  }

  openSearch(): void {
    this._isSearching = true;
    this._changed.emit(); // at once: the next key is for the field
    this._searched.emit();
  }

  closeSearch(): void {
    this._isSearching = false;
    this.terminal?.clearSearch();
    this.terminal?.focus();
    this.tell();
  }

  /** The search was asked for: whoever shows it takes the focus. */
  get searched(): ISignal<this, void> {
    return this._searched;
  }

  copy(): void {
    if (this.terminal) {
      Clipboard.copyToSystem(this.terminal.text);
    }
  }

  async downloadWhole(): Promise<void> {
    if (this._download) {
      return;
    }
    const stop = new AbortController();
    const told = (bytes: number) => {
      this._download = { bytes, stop: () => stop.abort() };
      this.tell();
    };
    this._problem = null;
    told(0);
    try {
      const file = await this.options.fetchWhole(this.log, stop.signal, told);
      save(file, this.fileName);
    } catch (error) {
      this._problem = stop.signal.aborted ? null : sentenceOf(error);
    } finally {
      this._download = null;
      this.tell();
    }
  }

  /** Colours and fonts of the page have changed. */
  restyle(): void {
    this.terminal?.restyle();
    this.fitTerminal();
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._download?.stop();
    this.watch?.dispose();
    this.feed.dispose();
    this.terminal?.dispose();
    this.resizing?.disconnect();
    Signal.clearData(this);
    super.dispose();
  }

  // ---- only while somebody looks

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.look();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.look();
  }

  protected onBeforeHide(message: Message): void {
    super.onBeforeHide(message);
    this.lookAway();
  }

  protected onBeforeDetach(message: Message): void {
    super.onBeforeDetach(message);
    this.lookAway();
  }

  protected onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    this.fitTerminal();
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.terminal?.focus();
  }

  private look(): void {
    if (!this.isVisible || this.watch) {
      return;
    }
    this.watch = this.cluster.watch({
      topics: ['status'],
      jobs: [this.log.job]
    });
    void this.begin();
  }

  private lookAway(): void {
    this.watch?.dispose();
    this.watch = null;
    this.feed.pause();
  }

  private async begin(): Promise<void> {
    this.opening ??= this.openTerminal();
    await this.opening;
    if (this.watch && this.terminal) {
      this.fitTerminal();
      this.feed.resume();
    }
  }

  private async openTerminal(): Promise<void> {
    try {
      const terminal = await LogTerminal.open(this.screen.node, this.trans);
      if (this.isDisposed) {
        terminal.dispose();
        return;
      }
      this._terminal = terminal;
      if (document.activeElement === this.node) {
        terminal.focus(); // the log was gone to before it was there
      }
      terminal.changed.connect(this.tell, this);
      this.resizing = new ResizeObserver(() => this.fitTerminal());
      this.resizing.observe(this.screen.node);
    } catch (error) {
      this._problem = this.trans.__(
        'The log cannot be shown: %1',
        sentenceOf(error)
      );
      this.tell();
    }
  }

  private fitTerminal(): void {
    if (this.isVisible && this.screen.node.offsetWidth > 0) {
      this.terminal?.fit();
    }
  }

  // ---- what the text needs to know

  /** The history is needed once an attempt after the first begins. */
  private async prepare(items: readonly StreamItem[]): Promise<void> {
    const newest = Math.max(
      ...items.map(item => (item.type === 'attempt' ? (item.attempt ?? 0) : 0))
    );
    if (newest > 1) {
      this.history = await this.cluster
        .history(this.log.job)
        .catch(() => this.history); // the line is shorter without it
    }
  }

  private ending(attempt: number): string {
    return attemptEnding(attempt, this.history ?? [], this.trans);
  }

  private writing(): { isOver: boolean; untilUs: number } {
    const nowUs = (Date.now() + this.cluster.clockOffsetMs) * US_PER_MS;
    const endedUs = this.job?.ended_us ?? null;
    return { isOver: endedUs !== null, untilUs: endedUs ?? nowUs };
  }

  private get fileName(): string {
    const { job, log } = this;
    const name = (job?.name ?? '').replace(/[^\p{L}\p{N}._-]+/gu, '-');
    const parts = ['job', job?.number ?? log.job, name, `rank-${log.rank}`];
    if (log.attempt !== null) {
      parts.push(`attempt-${log.attempt}`);
    }
    return `${parts.filter(part => part !== '').join('-')}.log`;
  }

  private onCluster(_: IGpuCluster, change: IClusterChange): void {
    if (change.connection || change.jobs.has(this.log.job)) {
      this.tell();
    }
  }

  private onFeed(): void {
    if (this.terminal?.isPaging && this.feed.isUpToDate) {
      this.terminal.isPaging = false;
    }
    this.tell();
  }

  private tell(): void {
    this.lastJob = this.cluster.job(this.log.job) ?? this.lastJob;
    if (this.frame === 0 && !this.isDisposed) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        if (!this.isDisposed) {
          this._changed.emit();
        }
      });
    }
  }

  private readonly screen = new Widget();
  private _terminal: LogTerminal | null = null;
  private opening: Promise<void> | null = null;
  private resizing: ResizeObserver | null = null;
  private watch: IWatch | null = null;
  private history: HistoryView[] | null = null;
  private lastJob: JobView | undefined;
  private frame = 0;
  private _download: IDownload | null = null;
  private _problem: string | null = null;
  private _isSearching = false;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _searched = new Signal<this, void>(this);
}

/** Whether the job may still write. */
export function isWriting(panel: LogPanel): boolean {
  return panel.job === undefined || !isEnded(panel.job.state);
}

function save(file: Blob, name: string): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  document.body.appendChild(link);
  link.click();
  link.remove();
  URL.revokeObjectURL(url);
}
