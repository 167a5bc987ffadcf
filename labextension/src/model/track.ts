/** The step reports of one job as a page keeps them: a bounded number, thinned out evenly, and the rate of the newest. */
import { Progress } from '../api/schemas';
import { ITrack } from '../tokens';

/** At most so many reports are kept; then every second one is dropped. */
export const MAX_REPORTS = 240;
/** The rate is that of the newest reports, of about so much time. */
const RATE_WINDOW_US = 30e6;
/** Of reports that are closer than this the newest alone counts towards the rate. */
const RATE_GRAIN_US = 0.5e6;

export class Track implements ITrack {
  get reports(): readonly Progress[] {
    return this.kept;
  }

  get stepsPerS(): number | null {
    const first = this.recent[0];
    const last = this.recent[this.recent.length - 1];
    if (!first || first === last) {
      return null;
    }
    return (last.step - first.step) / ((last.time_us - first.time_us) / 1e6);
  }

  get leftS(): number | null {
    const newest = this.newest;
    if (!newest || newest.total === null) {
      return null;
    }
    const left = Math.max(0, newest.total - newest.step);
    const rate = this.stepsPerS;
    if (left === 0) {
      return 0;
    }
    return rate !== null && rate > 0 ? left / rate : null;
  }

  points(metric: string): [number, number][] {
    const points: [number, number][] = [];
    for (const report of this.kept) {
      const value = report.metrics[metric];
      if (typeof value === 'number' && Number.isFinite(value)) {
        points.push([report.time_us / 1e6, value]);
      }
    }
    return points;
  }

  get metrics(): readonly string[] {
    const names = Object.keys(this.newest?.metrics ?? {});
    return names.includes('loss')
      ? ['loss', ...names.filter(name => name !== 'loss')]
      : names;
  }

  /** Take in a report newer than those before; any other is left out. Says whether it was taken. */
  add(report: Progress): boolean {
    const newest = this.newest;
    if (newest && report.time_us <= newest.time_us) {
      return false;
    }
    if (newest && report.step < newest.step) {
      this.clear(); // a new attempt counts from the beginning
    }
    this.keep(report);
    this.rate(report);
    return true;
  }

  /** Take in reports of any time, such as the earlier ones. Says whether anything changed. */
  merge(reports: readonly Progress[]): boolean {
    const known = new Map<number, Progress>();
    for (const report of [...reports, ...this.kept, ...this.recent]) {
      known.set(report.time_us, report);
    }
    const before = this.kept;
    this.clear();
    [...known.values()]
      .sort((one, other) => one.time_us - other.time_us)
      .forEach(report => this.add(report));
    return (
      before.length !== this.kept.length ||
      before.some((report, at) => report.time_us !== this.kept[at].time_us)
    );
  }

  private get newest(): Progress | undefined {
    return this.kept[this.kept.length - 1];
  }

  private clear(): void {
    this.kept = [];
    this.recent = [];
    this.stride = 1;
    this.count = 0;
  }

  /** Every `stride`-th report stays, and the newest always. */
  private keep(report: Progress): void {
    const isNewestPassing = this.count > 0 && (this.count - 1) % this.stride;
    const kept = isNewestPassing ? this.kept.slice(0, -1) : this.kept.slice();
    kept.push(report);
    this.count += 1;
    if (kept.length > MAX_REPORTS) {
      this.stride *= 2;
      this.kept = kept.filter((_, at) => at % 2 === 0);
    } else {
      this.kept = kept;
    }
  }

  private rate(report: Progress): void {
    const recent = this.recent;
    const last = recent[recent.length - 1];
    const before = recent[recent.length - 2];
    if (before && last.time_us - before.time_us < RATE_GRAIN_US) {
      recent.pop();
    }
    recent.push(report);
    // One from before the window stays when it is all that the newest can be compared with.
    while (
      recent.length > 2 &&
      report.time_us - recent[0].time_us > RATE_WINDOW_US
    ) {
      recent.shift();
    }
  }

  // A new array at each change, so that a view can tell by identity.
  private kept: Progress[] = [];
  private recent: Progress[] = [];
  private stride = 1;
  private count = 0;
}

/** Of a job of which nothing is known. */
export const EMPTY_TRACK: ITrack = new Track();
