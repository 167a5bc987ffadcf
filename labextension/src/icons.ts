/** The extension's own icons. */
import { LabIcon } from '@jupyterlab/ui-components';

import gpu from '../style/icons/gpu.svg';

/** A chip; the name stands in schema/plugin.json too. */
export const gpuIcon = new LabIcon({
  name: 'jupyter-gpucluster:gpu',
  svgstr: gpu
});
