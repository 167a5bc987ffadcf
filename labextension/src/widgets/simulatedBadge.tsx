/** Says that GPUs are simulated; stands wherever such GPUs are shown. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

export function SimulatedBadge(props: {
  trans: TranslationBundle;
  /** So many of the GPUs alone. */
  part?: number;
}): JSX.Element {
  const { trans, part } = props;
  return (
    <span
      className="jp-gpucluster-badge jp-gpucluster-mod-simulated"
      title={trans.__(
        'These GPUs are declared, there is no such hardware. The jobs on them are real processes.'
      )}
    >
      {part === undefined
        ? trans.__('simulated')
        : trans.__('%1 simulated', part)}
    </span>
  );
}
