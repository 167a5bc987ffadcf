import { nullTranslator } from '@jupyterlab/translation';
import { act, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { ApiError } from '../../api/errors';
import { JobView } from '../../api/schemas';
import { FakeCluster, fakeCluster, jobView } from '../../model/testing';
import { CancelButton } from '../cancelButton';

const trans = nullTranslator.load('jupyter_gpucluster');
const running = jobView({ id: 'j', number: 12, state: 'running' });

function show(
  job: JobView,
  cluster: FakeCluster,
  onGone?: () => void
): { again: (job: JobView) => void } {
  const element = (view: JobView) => (
    <CancelButton job={view} cluster={cluster} trans={trans} onGone={onGone} />
  );
  const { rerender } = render(element(job));
  return { again: view => rerender(element(view)) };
}

const button = (name: string) => screen.getByRole('button', { name });

describe('CancelButton', () => {
  it('asks first; No leaves the job alone and gives the focus back', () => {
    const cluster = fakeCluster({ jobs: [running] });
    show(running, cluster);
    button('Cancel job 12').focus();
    fireEvent.click(button('Cancel job 12'));
    expect(screen.getByRole('group', { name: 'Cancel job 12?' })).toBeTruthy();
    expect(document.activeElement).toBe(button('No'));
    fireEvent.click(button('No'));
    expect(document.activeElement).toBe(button('Cancel job 12'));
    expect(cluster.asked).toEqual([]);
  });

  it('is called off by Escape', () => {
    const cluster = fakeCluster({ jobs: [running] });
    show(running, cluster);
    fireEvent.click(button('Cancel job 12'));
    fireEvent.keyDown(button('No'), { key: 'Escape' });
    expect(button('Cancel job 12')).toBeTruthy();
    expect(cluster.asked).toEqual([]);
  });

  it('says at once that it cancels, keeps the focus and cannot be pressed again', async () => {
    const cluster = fakeCluster({ jobs: [running] });
    const { again } = show(running, cluster);
    fireEvent.click(button('Cancel job 12'));
    await act(async () => {
      button('Yes').focus();
      fireEvent.click(button('Yes'));
    });
    const sent = button('Cancelling…');
    expect(sent.getAttribute('aria-disabled')).toBe('true');
    expect(document.activeElement).toBe(sent);
    again({ ...running, state: 'stopping' });
    fireEvent.click(button('Cancelling…'));
    expect(cluster.asked).toEqual([['cancel', 'j']]);
  });

  it('takes the second click of a double click for no answer', () => {
    const cluster = fakeCluster({ jobs: [running] });
    show(running, cluster);
    fireEvent.click(button('Cancel job 12'));
    fireEvent.click(button('Yes'), { detail: 2 });
    expect(cluster.asked).toEqual([]);
    expect(button('Yes')).toBeTruthy();
  });

  it('says beside it why it was not allowed, and can be tried again', async () => {
    const cluster = fakeCluster({ jobs: [running] });
    cluster.answers.cancel = () => {
      throw new ApiError(403, {
        code: 'forbidden',
        reason: 'Job 12 is ada’s.',
        hint: 'Ask ada or an administrator.'
      });
    };
    show(running, cluster);
    fireEvent.click(button('Cancel job 12'));
    await act(async () => {
      fireEvent.click(button('Yes'));
    });
    expect(screen.getByRole('alert').textContent).toBe(
      'Job 12 is ada’s. Ask ada or an administrator.'
    );
    fireEvent.click(button('Cancel job 12'));
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('is not there for jobs of others and jobs that have ended', () => {
    const cluster = fakeCluster();
    show({ ...running, can_control: false }, cluster);
    show({ ...running, state: 'succeeded' }, cluster);
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('tells when it goes while it has the focus, so that the focus is not lost', () => {
    const onGone = jest.fn();
    const { again } = show(running, fakeCluster(), onGone);
    act(() => button('Cancel job 12').focus());
    again({ ...running, state: 'cancelled' });
    expect(onGone).toHaveBeenCalledTimes(1);
  });
});
