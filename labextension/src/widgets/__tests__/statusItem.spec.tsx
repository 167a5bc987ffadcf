import { nullTranslator } from '@jupyterlab/translation';
import { act, fireEvent, render, screen } from '@testing-library/react';
import axe from 'axe-core';
import * as React from 'react';

import { fakeCluster, IFakeState, liveStatus } from '../../model/testing';
import { StatusItem } from '../statusItem';

const trans = nullTranslator.load('jupyter_gpucluster');

function show(state: Partial<IFakeState>) {
  const cluster = fakeCluster(state);
  const onClick = jest.fn();
  const rendered = render(
    <StatusItem cluster={cluster} trans={trans} onClick={onClick} />
  );
  return { cluster, onClick, ...rendered };
}

const text = () => screen.getByRole('button').textContent;

describe('the item of the status bar', () => {
  it('tells GPUs and my jobs, and that the GPUs are simulated', () => {
    const { cluster } = show({
      status: liveStatus({
        gpus: 32,
        gpus_used: 12,
        my_running: 2,
        my_waiting: 1,
        simulated: true
      })
    });
    expect(text()).toBe('GPU 12/32 · 2 running · 1 waitingsimulated');
    cluster.status = liveStatus({ gpus: 32, gpus_used: 8 });
    act(() => cluster.emit({ topics: new Set(['status']) }));
    expect(text()).toBe('GPU 8/32');
  });

  it('follows the status alone, as long as it is there', () => {
    const { cluster, unmount } = show({});
    expect([...cluster.interests]).toEqual([{ topics: ['status'] }]);
    unmount();
    expect(cluster.interests.size).toBe(0);
  });

  it('says that the cluster is away, and that it is back', () => {
    const { cluster } = show({
      status: liveStatus({ gpus: 4 }),
      connection: { state: 'away', reason: 'no answer', hint: null }
    });
    expect(text()).toBe('GPU 0/4away');
    expect(screen.getByRole('button').title).toContain('No answer.');
    cluster.connection = { state: 'live' };
    act(() => cluster.emit());
    expect(text()).toBe('GPU 0/4');
  });

  it('shows the panel when it is clicked', () => {
    const { onClick } = show({});
    fireEvent.click(screen.getByRole('button'));
    expect(onClick).toHaveBeenCalledTimes(1);
  });

  it('has nothing that axe finds fault with', async () => {
    const { container } = show({ status: liveStatus({ simulated: true }) });
    const { violations } = await axe.run(container, {
      rules: { 'color-contrast': { enabled: false } } // needs a browser
    });
    expect(violations.map(one => one.id)).toEqual([]);
  });
});
