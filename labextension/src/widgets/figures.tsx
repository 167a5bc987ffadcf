/** A job's progress in figures, with the course of its first metric. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { JobView, Progress } from '../api/schemas';
import * as words from '../model/words';
import { IGpuCluster } from '../tokens';
import { FactList, IFact } from './factList';
import { Sparkline } from './sparkline';

export interface IFiguresProps {
  job: JobView;
  cluster: IGpuCluster;
  /** Somebody looks, and the cluster knows the job: then earlier step reports are asked for, once. */
  isWanted: boolean;
  nowUs: number;
  trans: TranslationBundle;
}

const MOST_METRICS = 8;

export function Figures(props: IFiguresProps): JSX.Element | null {
  const { job, cluster, isWanted, nowUs, trans } = props;
  const { progress } = job;
  const names = metricNames(progress).slice(0, MOST_METRICS);
  const points = useCourse(cluster, job, names[0], isWanted);
  const isKnown = !cluster.isGone(job.id);
  const goesOn = isKnown && job.state === 'running';
  const pace = goesOn ? paceNow(cluster, job, nowUs) : null;
  const figures: IFact[] = [
    // Of a job of some other cluster nobody here can say that it still runs.
    ['elapsed', isKnown && words.elapsed(job, nowUs, trans)],
    ['steps', words.steps(progress, trans)],
    ...names.map((name, index): IFact => [
      `metric ${name}`,
      <>
        {name} {words.figure(progress!.metrics[name])}
        {index === 0 && points.length > 1 && (
          <>
            {' '}
            <Sparkline points={points} label={name} trans={trans} />
          </>
        )}
      </>
    ]),
    ['rate', pace && words.rateText(pace, trans)],
    ['left', pace && words.leftText(pace, trans)],
    ['first', progress && words.firstFeedback(job, trans)]
  ];
  return <FactList className="jp-gpucluster-cardFigures" facts={figures} />;
}

/** Whether there is a course to draw. */
export function hasMetrics(progress: Progress | null): boolean {
  return metricNames(progress).length > 0;
}

/** "loss" first, as it is what one looks at. */
function metricNames(progress: Progress | null): string[] {
  const names = Object.keys(progress?.metrics ?? {});
  return names.includes('loss')
    ? ['loss', ...names.filter(name => name !== 'loss')]
    : names;
}

/** How fast the job goes; the time left runs on between two reports. */
function paceNow(
  cluster: IGpuCluster,
  job: JobView,
  nowUs: number
): words.IPace {
  const { stepsPerS, leftS } = cluster.track(job.id);
  const sinceS = job.progress ? (nowUs - job.progress.time_us) / 1e6 : 0;
  return {
    stepsPerS,
    leftS: leftS === null ? null : Math.max(leftS - Math.max(sinceS, 0), 0)
  };
}

/** The points of a metric; what was seen once stays when the page forgets the job's reports. */
function useCourse(
  cluster: IGpuCluster,
  job: JobView,
  metric: string | undefined,
  isWanted: boolean
): [number, number][] {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  const isAsked = isWanted && metric !== undefined;
  React.useEffect(() => {
    if (isAsked) {
      void cluster.loadSteps(job.id).then(draw);
    }
  }, [cluster, job.id, isAsked]);
  const seen = React.useRef<[number, number][]>([]);
  const points =
    metric === undefined ? [] : cluster.track(job.id).points(metric);
  if (points.length > 1) {
    seen.current = points;
  }
  return metric === undefined ? [] : seen.current;
}
