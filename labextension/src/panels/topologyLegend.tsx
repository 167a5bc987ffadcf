/** What the colours and marks of the topology mean, with counts, and in the large view the jobs on the GPUs. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Highlight } from '../model/highlight';
import {
  BUSY_STEPS_PERCENT,
  Counts,
  GPU_KINDS,
  GpuKind,
  IJobOnGpus,
  ITopology,
  jobColor
} from '../model/topology';
import { TopologyValues } from '../model/topologyChoice';
import {
  busyStepLabel,
  kindLabel,
  kindMeaning,
  pinnedText
} from '../model/topologyWords';
import { Button } from '../widgets/button';

interface ILegendProps {
  topology: ITopology;
  colourBy: TopologyValues['colourBy'];
  trans: TranslationBundle;
}

/** Only what there is: an entry without a GPU is left out. */
export function TopologyLegend(props: ILegendProps): JSX.Element {
  const { topology, colourBy, trans } = props;
  return (
    <ul
      className="jp-gpucluster-topologyLegend"
      aria-label={trans.__('Legend')}
    >
      {colourBy === 'job' ? (
        GPU_KINDS.filter(kind => topology.counts[kind] > 0).map(kind => (
          <Kind key={kind} kind={kind} counts={topology.counts} trans={trans} />
        ))
      ) : (
        <Steps {...props} />
      )}
    </ul>
  );
}

function Kind(props: {
  kind: GpuKind;
  counts: Counts;
  trans: TranslationBundle;
}): JSX.Element {
  const { kind, counts, trans } = props;
  return (
    <Entry
      mark={`jp-gpucluster-mod-${kind} jp-gpucluster-mod-anyJob`}
      label={kindLabel(kind, trans)}
      meaning={kindMeaning(kind, trans)}
      count={counts[kind]}
    />
  );
}

function Steps({ topology, trans }: ILegendProps): JSX.Element {
  const { usage, counts } = topology;
  return (
    <>
      {usage.unused > 0 && (
        <Entry
          mark=""
          label={trans.__('not in use')}
          meaning={trans.__('No job has it, and no other program.')}
          count={usage.unused}
        />
      )}
      {BUSY_STEPS_PERCENT.map((from, step) => ({ from, step }))
        .filter(({ step }) => usage.steps[step] > 0)
        .map(({ from, step }) => (
          <Entry
            key={from}
            mark={stepMark(step)}
            busyPercent={((BUSY_STEPS_PERCENT[step + 1] ?? 100) + from) / 2}
            label={busyStepLabel(step, trans)}
            meaning={
              step
                ? trans.__('Utilisation over the last seconds.')
                : trans.__(
                    'A job, or another program, has it and hardly uses it.'
                  )
            }
            count={usage.steps[step]}
          />
        ))}
      {usage.notMeasured > 0 && (
        <Entry
          mark="jp-gpucluster-mod-unmeasured"
          label={trans.__('not measured')}
          meaning={
            topology.simulatedGpus
              ? trans.__('Simulated GPUs have no utilisation to measure.')
              : trans.__('Their utilisation is not told.')
          }
          count={usage.notMeasured}
        />
      )}
      {(['mine', 'bad'] as const)
        .filter(kind => counts[kind] > 0)
        .map(kind => (
          <Kind key={kind} kind={kind} counts={counts} trans={trans} />
        ))}
    </>
  );
}

function stepMark(step: number): string {
  return `jp-gpucluster-mod-held jp-gpucluster-mod-step${step}${step ? '' : ' jp-gpucluster-mod-idle'}`;
}

function Entry(props: {
  mark: string;
  label: string;
  meaning: string;
  count: number;
  busyPercent?: number;
}): JSX.Element {
  const style = {
    '--jp-gpucluster-busy': `${props.busyPercent ?? 0}%`
  } as React.CSSProperties;
  return (
    <li title={props.meaning}>
      <span
        className={`jp-gpucluster-topologyGpu ${props.mark}`}
        style={style}
        aria-hidden="true"
      />
      <span>{props.label}</span>
      <b>{props.count}</b>
    </li>
  );
}

/** More jobs than these are only counted. */
const MOST_JOBS = 24;

/** The jobs on the GPUs, each with its colour: pointing at one shows it up, a click keeps it so. */
export function TopologyJobs(props: {
  jobs: readonly IJobOnGpus[];
  highlight: Highlight;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { jobs, highlight, trans } = props;
  if (!jobs.length) {
    return null;
  }
  return (
    <ul
      className="jp-gpucluster-topologyJobsOnGpus"
      aria-label={trans.__('Jobs')}
    >
      {jobs.slice(0, MOST_JOBS).map(job => (
        <li key={job.number}>
          <Button
            className={job.mine ? 'jp-gpucluster-mod-mine' : ''}
            aria-pressed={highlight.pinned === job.number}
            title={pinnedText(job, undefined, trans)}
            onClick={() => highlight.toggle(job.number)}
            onPointerEnter={() => highlight.hover(job.number)}
            onPointerLeave={() => highlight.hover(null)}
            onFocus={() => highlight.hover(job.number)}
            onBlur={() => highlight.hover(null)}
          >
            <span
              className={`jp-gpucluster-topologyGpu jp-gpucluster-mod-${job.mine ? 'mine' : 'others'}`}
              style={
                {
                  '--jp-gpucluster-job': jobColor(job.number)
                } as React.CSSProperties
              }
              aria-hidden="true"
            />
            <b>#{job.number}</b> {job.name}
            <span className="jp-gpucluster-topologyJobGpus">
              {trans._n('%1 GPU', '%1 GPUs', job.gpus)}
            </span>
          </Button>
        </li>
      ))}
      {jobs.length > MOST_JOBS && (
        <li>{trans.__('… and %1 more', jobs.length - MOST_JOBS)}</li>
      )}
    </ul>
  );
}
