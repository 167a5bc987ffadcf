/** A job's state as a picture: each state has a form of its own, so that nothing depends on its colour. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { stateLabel } from '../model/words';

export interface IStateIconProps {
  state: string;
  trans: TranslationBundle;
  /** The state stands beside it in words, so a screen reader need not hear it twice. */
  isDecorative?: boolean;
}

export function StateIcon(props: IStateIconProps): JSX.Element {
  const label = stateLabel(props.state, props.trans);
  return (
    <svg
      className={`jp-gpucluster-stateIcon ${stateClass(props.state)}`}
      viewBox="0 0 16 16"
      {...(props.isDecorative
        ? { 'aria-hidden': true }
        : { role: 'img', 'aria-label': label })}
    >
      {!props.isDecorative && <title>{label}</title>}
      <Form state={props.state} />
    </svg>
  );
}

/** The class that gives a state its colour (`--jp-gpucluster-state`) to whatever is inside. */
export function stateClass(state: string): string {
  return /^[a-z]+$/.test(state) ? `jp-gpucluster-mod-${state}` : '';
}

const RING = <circle cx="8" cy="8" r="6" className="jp-gpucluster-line" />;

function Form({ state }: { state: string }): JSX.Element {
  switch (state) {
    case 'pending':
      return (
        <circle
          cx="8"
          cy="8"
          r="6"
          className="jp-gpucluster-line"
          strokeDasharray="2.2 2.51"
        />
      );
    case 'starting':
      return (
        <>
          {RING}
          <path d="M8 8V3.5A4.5 4.5 0 0 1 12.5 8Z" />
        </>
      );
    case 'running':
      return (
        <>
          {RING}
          <circle cx="8" cy="8" r="3.5" className="jp-gpucluster-beat" />
        </>
      );
    case 'suspended':
      return <path d="M4 3h3v10H4zM9 3h3v10H9z" />;
    case 'stopping':
      return (
        <>
          {RING}
          <path d="M5.5 5.5h5v5h-5z" />
        </>
      );
    case 'succeeded':
      return <path d="M3 8.5 6.5 12 13 4.5" className="jp-gpucluster-line" />;
    case 'failed':
      return <path d="M4 4 12 12M12 4 4 12" className="jp-gpucluster-line" />;
    case 'cancelled':
      return (
        <>
          {RING}
          <path d="M4 12 12 4" className="jp-gpucluster-line" />
        </>
      );
    default:
      return <circle cx="8" cy="8" r="2.5" />;
  }
}
