import { JupyterFrontEnd } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { CommandRegistry } from '@lumino/commands';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { act, fireEvent } from '@testing-library/react';

import { FakeCluster, fakeCluster, liveStatus } from '../../model/testing';
import { GpuSettings } from '../../settings';
import { CommandIDs } from '../../tokens';
import { statusbar } from '../statusbar';

/** The plugin in an application that is a registry of commands alone, and a bar that keeps what it is given. */
async function activated() {
  const commands = new CommandRegistry();
  const shown = jest.fn();
  commands.addCommand(CommandIDs.showPanel, { execute: shown });
  const settings = new GpuSettings();
  const cluster = fakeCluster({ status: liveStatus({ gpus: 4 }) });
  const items: IStatusBar.IItem[] = [];
  const bar = {
    registerStatusItem: (_: string, item: IStatusBar.IItem) => items.push(item)
  };
  const app = { commands } as unknown as JupyterFrontEnd;
  await statusbar.activate(app, cluster, settings, bar, null);
  const [item] = items;
  act(() => {
    Widget.attach(item.item, document.body);
    MessageLoop.flush();
  });
  return { cluster, settings, shown, item };
}

/** The setting is changed and the item drawn anew. */
function want(settings: GpuSettings, isWanted: boolean): void {
  act(() => {
    void settings.set('showStatusBar', isWanted);
    MessageLoop.flush();
  });
}

const follows = (cluster: FakeCluster) => cluster.interests.size > 0;

describe('the status bar', () => {
  it('has an item whose click shows the panel', async () => {
    const { item, shown } = await activated();
    expect(item.item.node.textContent).toContain('GPU 0/4');
    fireEvent.click(item.item.node.querySelector('button')!);
    expect(shown).toHaveBeenCalledTimes(1);
    act(() => item.item.dispose());
  });

  it('is told by the settings whether to show it; hidden, it asks for nothing', async () => {
    const { item, settings, cluster } = await activated();
    const changes = jest.fn();
    item.activeStateChanged!.connect(changes);
    expect([item.isActive!(), follows(cluster)]).toEqual([true, true]);
    want(settings, false);
    expect([item.isActive!(), follows(cluster)]).toEqual([false, false]);
    want(settings, true);
    expect([item.isActive!(), follows(cluster)]).toEqual([true, true]);
    expect(changes).toHaveBeenCalledTimes(2);
    act(() => item.item.dispose());
  });

  it('is done without where there is none, as in Notebook', async () => {
    const app = { commands: new CommandRegistry() };
    const cluster = fakeCluster();
    await statusbar.activate(
      app as unknown as JupyterFrontEnd,
      cluster,
      new GpuSettings(),
      null,
      null
    );
    expect(follows(cluster)).toBe(false);
  });
});
