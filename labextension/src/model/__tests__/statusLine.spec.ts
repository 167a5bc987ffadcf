import { nullTranslator } from '@jupyterlab/translation';

import { statusLine } from '../statusLine';
import { fakeCluster, IFakeState, liveStatus } from '../testing';

const trans = nullTranslator.load('jupyter_gpucluster');
const line = (state: Partial<IFakeState>) =>
  statusLine(fakeCluster(state), trans);

describe('the line of the status bar', () => {
  it('tells GPUs in use and my jobs', () => {
    const status = liveStatus({
      gpus: 32,
      gpus_used: 12,
      my_running: 2,
      my_waiting: 1,
      running: 7,
      waiting: 9
    });
    expect(line({ status })).toMatchObject({
      gpus: 'GPU 12/32',
      jobs: ['2 running', '1 waiting'],
      simulated: false,
      isAway: false
    });
    expect(line({ status }).title).toContain('Jobs: 7 running, 9 waiting');
  });

  it('is silent about jobs where I have none', () => {
    expect(line({ status: liveStatus({ running: 3 }) }).jobs).toEqual([]);
  });

  it('says that GPUs are simulated, and how many are not healthy', () => {
    const status = liveStatus({
      simulated: true,
      gpus: 8,
      gpus_healthy: 7,
      notes: ['a note']
    });
    const { simulated, title } = line({ status });
    expect(simulated).toBe(true);
    expect(title.split('\n')).toEqual([
      'lab: 0 of 8 GPUs in use on 1 node',
      'The GPUs are simulated.',
      '1 GPU not healthy',
      'Jobs: 0 running, 0 waiting',
      'Mine: 0 running, 0 waiting',
      'a note',
      'Click to see queues, topology and jobs.'
    ]);
  });

  it('of a scheduler that is away says why, and of when the figures are', () => {
    const { isAway, title, gpus } = line({
      status: liveStatus({ gpus: 2 }),
      connection: {
        state: 'away',
        reason: 'the scheduler does not answer',
        hint: 'It comes back by itself.'
      }
    });
    expect(isAway).toBe(true);
    expect(gpus).toBe('GPU 0/2');
    expect(title).toMatch(
      /^The scheduler does not answer\. It comes back by itself\.\nWhat is shown is of .*2025/
    );
  });

  it('knows nothing before anything was heard', () => {
    const found = line({
      heardMs: null,
      connection: { state: 'away', reason: 'no scheduler', hint: null }
    });
    expect(found.gpus).toBeNull();
    expect(found.title).toContain('Nothing was heard from the cluster yet.');
  });
});
