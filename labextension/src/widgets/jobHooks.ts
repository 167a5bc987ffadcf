/** How a view of a single job follows it: only while somebody looks, and until it has ended. */
import * as React from 'react';

import { HistoryView, JobView, StreamItem } from '../api/schemas';
import { IStreams } from '../api/streams';
import { isDisturbed } from '../model/cardState';
import { Tail } from '../model/tail';
import { IGpuCluster } from '../tokens';

/** Whether the element is in the window, or nearly so. Without the means to know, it is. */
export function useInView(element: React.RefObject<Element>): boolean {
  const [isInView, setIsInView] = React.useState(
    typeof IntersectionObserver === 'undefined'
  );
  React.useEffect(() => {
    if (typeof IntersectionObserver === 'undefined' || !element.current) {
      return;
    }
    const observer = new IntersectionObserver(
      entries => setIsInView(entries[entries.length - 1].isIntersecting),
      { rootMargin: '200px' }
    );
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [element]);
  return isInView;
}

/** The newest view of a job that the cluster told; asked for while `isWanted`. */
export function useJob(
  cluster: IGpuCluster,
  id: string,
  isWanted: boolean
): JobView | undefined {
  const [view, setView] = React.useState(() => cluster.job(id));
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    if (!isWanted) {
      return;
    }
    // A view that the cluster no longer keeps stays the newest that was told.
    const look = () => setView(before => cluster.job(id) ?? before);
    const onChanged: Parameters<typeof cluster.changed.connect>[0] = (
      _,
      change
    ) => {
      if (change.jobs.has(id) || change.connection) {
        look();
        draw(); // progress, connection and whether it is known are read while drawing
      }
    };
    const watch = cluster.watch({ jobs: [id] });
    cluster.changed.connect(onChanged);
    look();
    return () => {
      cluster.changed.disconnect(onChanged);
      watch.dispose();
    };
  }, [cluster, id, isWanted]);
  return view;
}

/** What happened to a job that is being stopped or waits again; empty otherwise and until it is known. */
export function useHistory(
  cluster: IGpuCluster,
  job: JobView,
  isWanted: boolean
): readonly HistoryView[] {
  const [history, setHistory] = React.useState<readonly HistoryView[]>([]);
  // Once for each thing that happens, not at each new place in the queue.
  const key = isDisturbed(job)
    ? [job.state, job.attempts_made, job.state === 'stopping' && job.reason]
    : [];
  const happened = key.join('\n');
  React.useEffect(() => {
    let isOver = false;
    setHistory([]);
    if (isWanted && happened) {
      cluster.history(job.id).then(
        entries => isOver || setHistory(entries),
        () => undefined // the reason in the view has to do
      );
    }
    return () => {
      isOver = true;
    };
  }, [cluster, job.id, happened, isWanted]);
  return history;
}

/** So many lines, out of at most so many records and bytes. */
const TAIL_LINES = 6;
const TAIL_QUERY = { tail: '60', tail_bytes: '16384', rank: '0' };
/** A job that prints more than this between two looks is not followed but looked at anew: its flood stays out of the page. */
const FLOOD_CHARS = 64 * 1024;
const AGAIN_MS = 1000;

/**
 * The last lines that a job printed: from when it `isPrinting`, until everything of it was read, while they are `isShown`.
 * The last of all come after the job has ended; then they stay as they are.
 */
export function useTail(
  streams: IStreams | null,
  id: string,
  isPrinting: boolean,
  isShown: boolean
): readonly string[] {
  const [lines, setLines] = React.useState<readonly string[]>([]);
  const [hasBegun, setHasBegun] = React.useState(isPrinting);
  const [isWhole, setIsWhole] = React.useState(false);
  React.useEffect(
    () => setHasBegun(begun => begun || isPrinting),
    [isPrinting]
  );
  const isFollowed = hasBegun && isShown && !isWhole;
  React.useEffect(() => {
    if (!isFollowed || !streams) {
      return;
    }
    const following = new TailFollower(streams, id, setLines, () =>
      setIsWhole(true)
    );
    return () => following.stop();
  }, [streams, id, isFollowed]);
  return lines;
}

class TailFollower {
  constructor(
    private readonly streams: IStreams,
    private readonly id: string,
    private readonly onLines: (lines: readonly string[]) => void,
    private readonly onWhole: () => void
  ) {
    this.open();
  }

  stop(): void {
    this.channel?.dispose();
    clearTimeout(this.timer);
  }

  private open(): void {
    let chars = 0;
    this.tail.clear();
    this.channel = this.streams.open<StreamItem>({
      start: () => ({
        path: `jobs/${encodeURIComponent(this.id)}/log`,
        query: { ...TAIL_QUERY, follow: '1' }
      }),
      onOpen: () => this.tail.clear(),
      onEnded: () => this.onWhole(),
      onItems: items => {
        this.tail.add(items);
        this.onLines(this.tail.lines);
        chars += items.reduce(
          (sum, item) => sum + (item.payload?.length ?? 0),
          0
        );
        if (chars > FLOOD_CHARS) {
          this.channel?.dispose();
          this.timer = setTimeout(() => this.open(), AGAIN_MS);
        }
      }
    });
  }

  private readonly tail = new Tail(TAIL_LINES);
  private channel: { dispose(): void } | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
}
