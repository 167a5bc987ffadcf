import { nullTranslator } from '@jupyterlab/translation';

import { Announcer } from '../announcer';
import { jobView } from '../testing';

const trans = nullTranslator.load('jupyter_gpucluster');

function job(number: number, state: string, mine = true) {
  return jobView({ number, state, mine });
}

describe('what is announced', () => {
  it('is nothing about the jobs that were there from the beginning', () => {
    const announcer = new Announcer(trans);
    announcer.see([job(12, 'running')]);
    expect(announcer.hasNews).toBe(false);
    expect(announcer.take()).toBe('');
  });

  it('is each change of state of my jobs, once', () => {
    const announcer = new Announcer(trans);
    announcer.see([job(12, 'pending'), job(11, 'pending')]);
    announcer.see([job(12, 'running'), job(11, 'pending')]);
    expect(announcer.take()).toBe('job 12 train: running');
    announcer.see([job(12, 'running'), job(11, 'pending')]);
    expect(announcer.hasNews).toBe(false);
  });

  it('is nothing about the jobs of others', () => {
    const announcer = new Announcer(trans);
    announcer.see([job(12, 'pending', false)]);
    announcer.see([job(12, 'running', false)]);
    expect(announcer.hasNews).toBe(false);
  });

  it('is a job that was submitted since, but no older one that comes into sight', () => {
    const announcer = new Announcer(trans);
    announcer.see([job(12, 'running')]);
    announcer.see([job(13, 'pending'), job(12, 'running'), job(4, 'failed')]);
    expect(announcer.take()).toBe('job 13 train: pending');
  });

  it('is only where a job stands at last when it changed in between', () => {
    const announcer = new Announcer(trans);
    announcer.see([job(12, 'pending')]);
    announcer.see([job(12, 'starting')]);
    announcer.see([job(12, 'running')]);
    expect(announcer.take()).toBe('job 12 train: running');
  });

  it('is a count when much happens at once', () => {
    const announcer = new Announcer(trans);
    announcer.see([1, 2, 3, 4, 5].map(number => job(number, 'pending')));
    announcer.see(
      [1, 2, 3, 4, 5].map(number =>
        job(number, number === 5 ? 'failed' : 'running')
      )
    );
    expect(announcer.take()).toBe('4 jobs running; 1 job failed');
  });
});
