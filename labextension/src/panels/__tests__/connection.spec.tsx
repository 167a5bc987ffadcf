import { nullTranslator } from '@jupyterlab/translation';
import { act, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { FakeCluster, fakeCluster } from '../../model/testing';
import { Banner, SILENT_MS, trouble, useTrouble } from '../connection';

const trans = nullTranslator.load('jupyter_gpucluster');
const START_MS = 1_760_000_000_000;

function Shown({ cluster }: { cluster: FakeCluster }): JSX.Element {
  const { trouble: found, nowMs } = useTrouble(cluster);
  return found ? (
    <Banner cluster={cluster} trouble={found} nowMs={nowMs} trans={trans} />
  ) : (
    <p>all is well</p>
  );
}

function pass(ms: number): void {
  act(() => {
    jest.advanceTimersByTime(ms);
  });
}

beforeEach(() => {
  jest.useFakeTimers({ now: START_MS });
});

afterEach(() => {
  jest.useRealTimers();
});

function away(heardMs: number | null = START_MS): FakeCluster {
  return fakeCluster({
    heardMs,
    connection: {
      state: 'away',
      reason: 'nothing listens at the socket',
      hint: 'Start it with gpucluster serve.'
    }
  });
}

describe('a scheduler that is away', () => {
  it('is told with its reason and the age of what is shown, counting', () => {
    const { container } = render(<Shown cluster={away(START_MS - 12_000)} />);
    expect(container.textContent).toContain(
      'Last update 12 s ago. Nothing listens at the socket. Start it with gpucluster serve. Trying again …'
    );
    pass(3000);
    expect(container.textContent).toContain('Last update 15 s ago.');
    pass(60_000);
    expect(container.textContent).toContain('Last update 1 min 15 s ago.');
  });

  it('is told aloud once: what counts up is not', () => {
    render(<Shown cluster={away()} />);
    const said = screen.getByRole('status').textContent;
    pass(5000);
    expect(screen.getByRole('status').textContent).toBe(said);
    expect(said).not.toContain('ago');
  });

  it('can be tried at once', () => {
    const cluster = away();
    render(<Shown cluster={cluster} />);
    fireEvent.click(screen.getByRole('button', { name: 'Retry' }));
    expect(cluster.asked).toEqual([['retry']]);
  });

  it('is forgotten as soon as it is back, and no clock ticks', () => {
    const cluster = away();
    const { container } = render(<Shown cluster={cluster} />);
    cluster.connection = { state: 'live' };
    cluster.heardMs = Date.now();
    act(() => cluster.emit({ topics: new Set(), jobs: new Set() }));
    expect(container.textContent).toBe('all is well');
  });

  it('may never have been heard', () => {
    const { container } = render(<Shown cluster={away(null)} />);
    expect(container.textContent).toContain(
      'Nothing was heard from the cluster yet.'
    );
  });
});

describe('a connection that went silent', () => {
  it('is told though nothing was heard of an error', () => {
    const { container } = render(
      <Shown cluster={fakeCluster({ heardMs: START_MS })} />
    );
    expect(container.textContent).toBe('all is well');
    pass(SILENT_MS + 6000);
    expect(container.textContent).toContain('Last update');
    expect(container.textContent).toContain('The scheduler does not answer.');
  });

  it('is no trouble when nobody looked for long: an answer gets its time', () => {
    const cluster = fakeCluster({ heardMs: START_MS - 600_000 });
    expect(trouble(cluster, START_MS, START_MS + 1000)).toBeNull();
    expect(trouble(cluster, START_MS, START_MS + SILENT_MS + 1)).not.toBeNull();
  });
});
