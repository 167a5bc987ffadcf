import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { act } from '@testing-library/react';

import { fakeCluster, gpuView, nodeView } from '../../model/testing';
import { TopologyPanel } from '../topologyPanel';

const trans = nullTranslator.load('jupyter_gpucluster');

function attached() {
  const cluster = fakeCluster({
    nodes: [nodeView({ name: 'node-0', gpus: [gpuView()] })]
  });
  const panel = new TopologyPanel({
    cluster,
    commands: new CommandRegistry(),
    trans
  });
  act(() => {
    Widget.attach(panel, document.body);
    MessageLoop.flush();
  });
  return { cluster, panel };
}

const topics = (cluster: ReturnType<typeof fakeCluster>) =>
  [...cluster.interests].flatMap(interest => interest.topics);

describe('TopologyPanel', () => {
  it('shows the topology', () => {
    const { panel } = attached();
    expect(panel.node.textContent).toContain('1 of 1 GPU free');
    act(() => panel.dispose());
  });

  it('asks for nothing while it is hidden, or gone', () => {
    const { cluster, panel } = attached();
    expect(topics(cluster)).toContain('nodes');
    act(() => {
      panel.hide();
      MessageLoop.flush();
    });
    expect(topics(cluster)).toEqual([]);
    act(() => {
      panel.show();
      MessageLoop.flush();
    });
    expect(topics(cluster)).toContain('nodes');
    act(() => panel.dispose());
    expect(topics(cluster)).toEqual([]);
  });

  it('says when the cluster is away', () => {
    const { cluster, panel } = attached();
    cluster.connection = {
      state: 'away',
      reason: 'the scheduler does not answer',
      hint: null
    };
    act(() => cluster.emit());
    expect(panel.node.textContent).toContain('The scheduler does not answer.');
    expect(panel.node.textContent).toContain('1 of 1 GPU free');
    act(() => panel.dispose());
  });
});
