/** The user's own jobs that the cluster tells of for the first time. */
import { DisposableDelegate, IDisposable } from '@lumino/disposable';

import { JobView } from '../api/schemas';
import { IClusterChange, IGpuCluster } from '../tokens';

type Cluster = Pick<IGpuCluster, 'changed' | 'job' | 'jobs' | 'watch'>;

/** Calls `onNew` once for each job that was not known before. */
export function followNewJobs(
  cluster: Cluster,
  onNew: (job: JobView) => void
): IDisposable {
  const seen = new Set(cluster.jobs.map(job => job.id));
  const onChanged = (_: unknown, change: IClusterChange) => {
    for (const id of change.jobs) {
      const job = cluster.job(id);
      if (job?.mine && !seen.has(id)) {
        seen.add(id);
        onNew(job);
      }
    }
  };
  cluster.changed.connect(onChanged);
  const watch = cluster.watch({ topics: ['mine'] });
  return new DisposableDelegate(() => {
    cluster.changed.disconnect(onChanged);
    watch.dispose();
  });
}
