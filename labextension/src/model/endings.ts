/** Which jobs of mine have ended since they were last looked at. */
import { JobView } from '../api/schemas';
import { isEnded } from './words';

/** What was over when it was first seen is no news. */
export class Endings {
  /** The jobs as they are now; gives those that have ended since. */
  see(jobs: readonly JobView[]): JobView[] {
    const ended = jobs.filter(
      job => job.mine && isEnded(job.state) && this.open.delete(job.id)
    );
    for (const job of jobs) {
      if (job.mine && !isEnded(job.state)) {
        this.open.add(job.id);
      }
    }
    return ended;
  }

  private readonly open = new Set<string>();
}
