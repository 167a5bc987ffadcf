import { nullTranslator } from '@jupyterlab/translation';
import { act, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { fakeCluster, liveStatus, queueView } from '../../model/testing';
import { ViewState } from '../../model/viewState';
import { Queues } from '../queues';

const trans = nullTranslator.load('jupyter_gpucluster');

function cluster() {
  return fakeCluster({
    status: liveStatus({ gpus: 32 }),
    queues: [
      queueView({
        name: 'root',
        parent: null,
        is_leaf: false,
        guaranteed: { gpu: 32_000, 'gpu/A100': 24_000, 'gpu/T4': 8000 }
      }),
      queueView({ name: 'vision', parent: 'root', is_leaf: false }),
      queueView({
        name: 'research',
        parent: 'vision',
        guaranteed: { gpu: 10_000 },
        max: { gpu: 24_000 },
        used: { gpu: 16_000, 'gpu/A100': 14_000, 'gpu/T4': 2000 },
        borrowed: { gpu: 6000 },
        mine: { gpu: 5000 },
        waiting: 2,
        free_for_good: { gpu: 3000 },
        free_until_reclaimed: { gpu: 5000 },
        lent_out: { gpu: 1500 }
      }),
      queueView({ name: 'speech', parent: 'root', may_submit: false })
    ]
  });
}

function draw(given = cluster(), view = new ViewState()) {
  render(<Queues cluster={given} view={view} trans={trans} />);
  return given;
}

function names(): string[] {
  return screen
    .getAllByRole('treeitem')
    .map(item => (item.getAttribute('aria-label') ?? '').split(',')[0]);
}

function item(name: string): HTMLElement {
  return screen.getByRole('treeitem', { name: new RegExp(`^${name},`) });
}

/** Press a key on whatever has the focus. */
function press(key: string): void {
  fireEvent.keyDown(document.activeElement ?? document.body, { key });
}

describe('the queue tree', () => {
  it('tells each queue in words', () => {
    draw();
    const research = item('research');
    expect(research.getAttribute('aria-label')).toBe(
      'research, 2 waiting, 16 used of 10 guaranteed (6 borrowed), 5 mine, 3 free for good · 5 more until reclaimed'
    );
    expect(research.getAttribute('aria-level')).toBe('2');
    expect(research.textContent).toContain(
      '16 used of 10 guaranteed (6 borrowed)'
    );
    expect(research.textContent).toContain(
      '3 free for good · 5 more until reclaimed'
    );
  });

  it('says which queue is closed to me, and why', () => {
    draw();
    expect(item('speech').textContent).toContain(
      'You may not submit to this queue.'
    );
  });

  it('is walked with the arrow keys', () => {
    draw();
    act(() => item('vision').focus());
    press('ArrowDown');
    expect(document.activeElement).toBe(item('research'));
    press('ArrowDown');
    expect(document.activeElement).toBe(item('speech'));
    press('ArrowDown');
    expect(document.activeElement).toBe(item('speech'));
    press('Home');
    expect(document.activeElement).toBe(item('vision'));
    press('End');
    press('ArrowUp');
    press('ArrowLeft');
    expect(document.activeElement).toBe(item('vision'));
  });

  it('closes and opens a queue', () => {
    draw();
    act(() => item('vision').focus());
    press('ArrowLeft');
    expect(names()).toEqual(['vision', 'speech']);
    expect(item('vision').getAttribute('aria-expanded')).toBe('false');
    press('ArrowRight');
    expect(names()).toEqual(['vision', 'research', 'speech']);
    press('ArrowRight');
    expect(document.activeElement).toBe(item('research'));
  });

  it('remembers what is closed', () => {
    const view = new ViewState();
    view.set({ closedQueues: ['vision'] });
    draw(cluster(), view);
    expect(names()).toEqual(['vision', 'speech']);
  });

  it('shows GPU types on demand', () => {
    draw();
    act(() => item('research').focus());
    expect(item('research').textContent).not.toContain('A100');
    press('Enter');
    expect(item('research').textContent).toContain('A100');
    expect(item('research').getAttribute('aria-label')).toContain(
      'A100: 14 used'
    );
    press(' ');
    expect(item('research').textContent).not.toContain('A100');
  });

  it('explains its figures on focus, until Escape', () => {
    draw();
    act(() => item('research').focus());
    expect(screen.getByRole('tooltip').textContent).toContain(
      '1.5 of its guaranteed GPUs are lent to other queues at present.'
    );
    press('Escape');
    expect(screen.queryByRole('tooltip')).toBeNull();
  });

  it('has one stop for the Tab key', () => {
    draw();
    act(() => item('research').focus());
    expect(
      screen.getAllByRole('treeitem').filter(one => one.tabIndex === 0)
    ).toEqual([item('research')]);
  });

  it('follows the queues while it is there, and no longer', () => {
    const given = cluster();
    const { unmount } = render(
      <Queues cluster={given} view={new ViewState()} trans={trans} />
    );
    expect([...given.interests]).toEqual([{ topics: ['queues'] }]);
    unmount();
    expect(given.interests.size).toBe(0);
  });

  it('is drawn again when the queues change', () => {
    const given = draw();
    given.queues = given.queues.map(queue =>
      queue.name === 'speech' ? { ...queue, used: { gpu: 1000 } } : queue
    );
    act(() => given.emit({ topics: new Set(['queues']), jobs: new Set() }));
    expect(item('speech').textContent).toContain('1 used of 4 guaranteed');
  });

  it('says that it is connecting before the first data', () => {
    draw(fakeCluster({ known: [] }));
    expect(screen.getByRole('status').textContent).toBe(
      'Connecting to the cluster…'
    );
  });
});
