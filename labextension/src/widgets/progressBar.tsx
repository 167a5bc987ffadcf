/** How far a job is: a thin bar in the colour of its state. */
import * as React from 'react';

import { stateClass } from './stateIcon';

export interface IProgressBarProps {
  /** 0 to 100; null when it is not known how far there is to go: then nothing is drawn. */
  percent: number | null;
  state: string;
  /** What progresses, such as "job 12 train". */
  label: string;
  /** How far in words, such as "step 30/100". */
  text?: string;
}

export function ProgressBar(props: IProgressBarProps): JSX.Element | null {
  if (props.percent === null) {
    return null;
  }
  const percent = Math.min(Math.max(props.percent, 0), 100);
  return (
    <div
      className={`jp-gpucluster-progress ${stateClass(props.state)}`}
      role="progressbar"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(percent)}
      aria-valuetext={props.text || undefined}
    >
      {/* Moved, not made wider: that costs no layout of the page while it goes on. */}
      <span
        style={{ transform: `translateX(${(percent - 100).toFixed(1)}%)` }}
      />
    </div>
  );
}
