import { JupyterFrontEnd } from '@jupyterlab/application';
import { CommandRegistry } from '@lumino/commands';
import { PromiseDelegate } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';

import { fakeCluster } from '../../model/testing';
import { topologyChoice } from '../../model/topologyChoice';
import { GpuSettings } from '../../settings';
import { CommandIDs } from '../../tokens';
import { topology } from '../topology';

function activated(labShell: object | null, restored = Promise.resolve()) {
  const commands = new CommandRegistry();
  const added: { widget: Widget; area: string }[] = [];
  const activations: string[] = [];
  const shell = {
    add: (widget: Widget, area: string) => {
      added.push({ widget, area });
      Widget.attach(widget, document.body);
    },
    activateById: (id: string) => activations.push(id)
  };
  const settings = new GpuSettings();
  topology.activate(
    { commands, shell, restored } as unknown as JupyterFrontEnd,
    fakeCluster(),
    settings,
    null,
    labShell,
    null,
    null
  );
  const open = () => commands.execute(CommandIDs.openTopology);
  return { open, added, activations, settings, commands };
}

describe('the command that opens the topology', () => {
  it('opens one panel, however often it is asked for', async () => {
    const { open, added, activations } = activated({});
    await Promise.all([open(), open()]);
    await open();
    expect(added.map(({ area }) => area)).toEqual(['main']);
    expect(activations.length).toBe(3);
  });

  it('waits until Lab has put back what was open, unless it is that', async () => {
    const restored = new PromiseDelegate<void>();
    const { open, added, commands } = activated({}, restored.promise);
    const opened = open();
    await new Promise(resolve => setTimeout(resolve));
    expect(added.length).toBe(0);
    await commands.execute(CommandIDs.openTopology, { isRestored: true });
    expect(added.length).toBe(1);
    restored.resolve();
    await opened;
    expect(added.length).toBe(1);
  });

  it('opens another when the first was closed', async () => {
    const { open, added } = activated({});
    await open();
    added[0].widget.close(); // as its tab does
    await open();
    expect(added.length).toBe(2);
    expect(added[0].widget.isDisposed).toBe(true);
  });

  it('opens it below the document in Notebook', async () => {
    const { open, added } = activated(null);
    await open();
    expect(added[0].area).toBe('down');
  });
});

it('what is chosen in the topology is kept in the settings', () => {
  const { settings } = activated({});
  topologyChoice.set('colourBy', 'utilisation');
  expect(settings.values.colourBy).toBe('utilisation');
});
