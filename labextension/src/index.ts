/** The plugins of the extension, one file each in plugins/; nothing else happens here. */
import { card } from './plugins/card';
import { cells } from './plugins/cells';
import { cluster, streams } from './plugins/cluster';
import { commands } from './plugins/commands';
import { log } from './plugins/log';
import { notify } from './plugins/notify';
import { settings } from './plugins/settings';
import { sidebar } from './plugins/sidebar';
import { statusbar } from './plugins/statusbar';
import { topology } from './plugins/topology';

export { IGpuCluster, IGpuSettings, IGpuStreams } from './tokens';

export default [
  settings,
  streams,
  cluster,
  sidebar,
  topology,
  statusbar,
  commands,
  card,
  log,
  notify,
  cells
];
