/** The tracks of all jobs of which this page has heard step reports. */
import { Progress } from '../api/schemas';
import { ITrack } from '../tokens';
import { EMPTY_TRACK, MAX_REPORTS, Track } from './track';

/** So many tracks of jobs that nobody looks at stay, for a card that comes back into view. */
const SPARE = 50;

interface IEntry {
  track: Track;
  /** Of the earlier reports; null while nobody asked for them, or when it has to be done again. */
  loading: Promise<void> | null;
}

export class Tracks {
  constructor(
    /** The earlier reports of a job. */
    private readonly load: (id: string, limit: number) => Promise<Progress[]>,
    private readonly onChange: (id: string) => void
  ) {}

  get(id: string): ITrack {
    return this.entries.get(id)?.track ?? EMPTY_TRACK;
  }

  add(id: string, report: Progress): void {
    if (this.entry(id).track.add(report)) {
      this.onChange(id);
    }
  }

  /** Put the earlier reports into the track, once. */
  loadEarlier(id: string): Promise<void> {
    const entry = this.entry(id);
    entry.loading ??= this.loadInto(id, entry);
    return entry.loading;
  }

  /** Some reports were missed: those that were loaded once are loaded again. */
  fillGaps(ids: ReadonlySet<string>): void {
    for (const [id, entry] of this.entries) {
      if (entry.loading && ids.has(id)) {
        entry.loading = this.loadInto(id, entry);
      }
    }
  }

  /** Forget the tracks of jobs other than these, but for some that were changed lately. */
  keep(ids: ReadonlySet<string>): void {
    const others = [...this.entries.keys()].filter(id => !ids.has(id));
    others.forEach(id => {
      this.entries.get(id)!.loading = null; // whoever comes back to it has missed something
    });
    others
      .slice(0, Math.max(0, others.length - SPARE))
      .forEach(id => this.entries.delete(id));
  }

  private async loadInto(id: string, entry: IEntry): Promise<void> {
    try {
      const reports = await this.load(id, MAX_REPORTS);
      if (entry.track.merge(ofOneRank(reports, entry.track))) {
        this.onChange(id);
      }
    } catch {
      entry.loading = null; // the track is only shorter; the next who looks may try again
    }
  }

  private entry(id: string): IEntry {
    let entry = this.entries.get(id);
    if (!entry) {
      entry = { track: new Track(), loading: null };
      this.entries.set(id, entry);
    }
    return entry;
  }

  private readonly entries = new Map<string, IEntry>();
}

/** The reports of the rank that the track follows, or else of the first one: the steps of several do not make one line. */
function ofOneRank(reports: Progress[], track: ITrack): Progress[] {
  const rank =
    track.reports[0]?.rank ?? Math.min(...reports.map(report => report.rank));
  return reports.filter(report => report.rank === rank);
}
