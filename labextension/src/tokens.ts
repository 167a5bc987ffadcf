/** What the parts of the extension, and other extensions, share: the cluster as this page follows it. */
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import {
  HistoryView,
  JobView,
  LiveStatus,
  NodeView,
  Progress,
  QueueView,
  WhyView
} from './api/schemas';
import { IStreams } from './api/streams';

export const IGpuCluster = new Token<IGpuCluster>(
  'jupyter-gpucluster:IGpuCluster',
  'The GPU cluster as this page follows it: status, queues, nodes and jobs, live.'
);

export type IGpuStreams = IStreams;

export const IGpuStreams = new Token<IStreams>(
  'jupyter-gpucluster:IGpuStreams',
  "The page's one WebSocket to the cluster and the channels on it."
);

export const IGpuSettings = new Token<IGpuSettings>(
  'jupyter-gpucluster:IGpuSettings',
  "The user's settings of the GPU cluster, typed."
);

/** See schema/plugin.json, where each is explained. */
export interface ISettingValues {
  showStatusBar: boolean;
  submitOptions: string;
  jobsShown: 'mine' | 'all';
  colourBy: 'job' | 'utilisation';
  topologySize: 'auto' | 'large' | 'small';
  fillCells: boolean;
  saveFilledCells: boolean;
  notifyOnEnd: 'failed' | 'all' | 'never';
}

/** The user's settings. Whoever finds no settings registry has the defaults. */
export interface IGpuSettings {
  readonly values: Readonly<ISettingValues>;
  readonly changed: ISignal<IGpuSettings, void>;
  /** Remembered by the registry where there is one, else for as long as the page lives. */
  set<K extends keyof ISettingValues>(
    key: K,
    value: ISettingValues[K]
  ): Promise<void>;
}

export type Topic = 'status' | 'queues' | 'nodes' | 'jobs' | 'mine';

/** What somebody on this page looks at: topics as a whole, and single jobs (by long id) in every detail. */
export interface IInterest {
  topics?: Topic[];
  jobs?: string[];
}

/** An interest that can be changed; disposing it ends it. What nobody looks at is not asked for. */
export interface IWatch extends IDisposable {
  update(interest: IInterest): void;
}

/** How this page stands with the cluster. `idle`: nobody looks, so nothing is asked for. */
export type Connection =
  | { state: 'idle' | 'connecting' | 'live' }
  | { state: 'away'; reason: string; hint: string | null };

/** What changed since the signal was last sent; at most once a frame. */
export interface IClusterChange {
  connection: boolean;
  topics: ReadonlySet<Topic>;
  /** Long ids of jobs whose view or progress changed, or that are gone. */
  jobs: ReadonlySet<string>;
}

/** The step reports of a job as far as this page knows them, oldest first, thinned out to a bounded number. */
export interface ITrack {
  readonly reports: readonly Progress[];
  /** Steps per second over the newest reports; null while unknown. */
  readonly stepsPerS: number | null;
  /** Seconds to the last step at that rate; null while unknown or without a total. */
  readonly leftS: number | null;
  /** The points of one metric, [time in s, value], oldest first; what is not finite is left out. */
  points(metric: string): [number, number][];
  /** Metrics by the newest report, "loss" first. */
  readonly metrics: readonly string[];
}

/** The cluster as this page follows it. All of the page share one. */
export interface IGpuCluster {
  readonly connection: Connection;
  /** When something was last heard, by Date.now(); null before. Heard at least every 10 s while live. */
  readonly heardMs: number | null;
  readonly status: LiveStatus | null;
  readonly queues: readonly QueueView[];
  readonly nodes: readonly NodeView[];
  /** Jobs of the topics `jobs` or `mine` and those that were asked for by id, newest first. */
  readonly jobs: readonly JobView[];
  /** How many older jobs the list left out. */
  readonly jobsLeftOut: number;
  readonly changed: ISignal<IGpuCluster, IClusterChange>;

  /** Topics that are whole by now: before, an empty list means "not known yet". */
  knows(topic: Topic): boolean;
  job(id: string): JobView | undefined;
  /** The cluster was asked for this job and does not know it (any more), or one may not see it: `jobs_gone` named it. */
  isGone(id: string): boolean;
  track(id: string): ITrack;
  watch(interest: IInterest): IWatch;
  /** Load earlier step reports into the job's track, once. Never throws: a track without them is only shorter. */
  loadSteps(id: string): Promise<void>;

  /** Raises ApiError. Asking twice does no harm. The view that comes back is taken in at once. */
  cancel(id: string, reason?: string): Promise<JobView>;
  share(id: string, share: 'owner' | 'queue' | 'everyone'): Promise<JobView>;
  why(id: string): Promise<WhyView>;
  history(id: string): Promise<HistoryView[]>;
  /** Try to connect now rather than after the back-off. */
  retry(): void;
  /** Server time minus this browser's clock, in milliseconds: what elapsed times are corrected by. */
  readonly clockOffsetMs: number;
}

/** Command ids; every one works from the palette too. */
export const CommandIDs = {
  showPanel: 'gpucluster:show-panel',
  /** The topology large, in the main area. */
  openTopology: 'gpucluster:open-topology',
  /** args: {job: long id} */
  cancelJob: 'gpucluster:cancel-job',
  /** args: {job, rank?, attempt?} */
  openLog: 'gpucluster:open-log',
  /** args: {job}; enabled when the job knows its notebook. */
  goToCell: 'gpucluster:go-to-cell',
  /** args: {job} */
  shareJob: 'gpucluster:share-job',
  /** Runs the active cell as a job: puts `%%submit` in front when it is not there. */
  submitCell: 'gpucluster:submit-cell'
} as const;
