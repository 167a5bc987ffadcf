import { GpuClient } from '../../api/client';
import { ApiError } from '../../api/errors';
import { JobView, LiveUpdate, Progress } from '../../api/schemas';
import { IChannelHandler, IStreams } from '../../api/streams';
import { IClusterChange, Topic } from '../../tokens';
import { ClusterModel } from '../cluster';
import { jobView, liveStatus, NOW_US, progress, queueView } from '../testing';

/** Channels that a test plays the server of. */
class FakeStreams {
  readonly asked: Record<string, string>[] = [];
  readonly retry = jest.fn();
  handler: IChannelHandler<LiveUpdate> | null = null;
  private seq = 100;

  open(handler: IChannelHandler<LiveUpdate>) {
    expect(this.handler).toBeNull(); // never two live channels at a time
    this.handler = handler;
    this.begin();
    return { isDisposed: false, dispose: () => (this.handler = null) };
  }

  /** The socket begins the channel, at first and after each loss. */
  begin(): void {
    const { path, query } = this.handler!.start();
    expect(path).toBe('live');
    this.asked.push(query!);
  }

  tell(...updates: Partial<LiveUpdate>[]): void {
    void this.handler!.onItems(
      updates.map(given => ({
        type: 'update' as const,
        seq: (this.seq += 1),
        time_us: Date.now() * 1000,
        ...given
      }))
    );
  }

  get last(): Record<string, string> {
    return this.asked[this.asked.length - 1];
  }
}

const error = (status: number) =>
  new ApiError(status, { code: 'x', reason: 'No scheduler.', hint: 'Wait.' });

const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);

let streams: FakeStreams;
let cluster: ClusterModel;
let changes: IClusterChange[];
const client = { steps: jest.fn(), cancel: jest.fn(), share: jest.fn() };

beforeEach(() => {
  jest.useFakeTimers({ now: NOW_US / 1000 });
  jest.resetAllMocks();
  streams = new FakeStreams();
  cluster = new ClusterModel(
    streams as unknown as IStreams,
    client as unknown as GpuClient
  );
  changes = [];
  cluster.changed.connect((_, change) => void changes.push(change));
});

afterEach(() => {
  cluster.dispose();
  expect(streams.handler).toBeNull();
  jest.useRealTimers();
});

describe('what is asked for', () => {
  it('is nothing while nobody looks', async () => {
    await pass(60_000);
    expect(streams.asked).toEqual([]);
    expect(cluster.connection).toEqual({ state: 'idle' });
  });

  it('is put together of all who look, in one request', async () => {
    cluster.watch({ topics: ['queues'] });
    await pass(40);
    cluster.watch({ topics: ['status'], jobs: ['job2', 'job1'] });
    await pass(60);
    expect(streams.asked).toEqual([
      { topics: 'status,queues', jobs: 'job1,job2' }
    ]);
  });

  it('goes on where it stood when something is added: what is there is not told again', async () => {
    cluster.watch({ topics: ['queues'] });
    await pass(50);
    streams.tell({ seq: 7, full: ['queues'] }, { seq: 9 });
    cluster.watch({ topics: ['nodes'] });
    await pass(50);
    expect(streams.last).toEqual({
      topics: 'queues,nodes',
      after: '9',
      have: 'queues'
    });
  });

  it('goes on where it stood after a lost connection', async () => {
    cluster.watch({ topics: ['queues', 'jobs'], jobs: ['job1'] });
    await pass(50);
    streams.tell({ seq: 7, full: ['queues', 'jobs'] });
    streams.begin();
    expect(streams.last).toEqual({
      topics: 'queues,jobs',
      jobs: 'job1',
      after: '7',
      have: 'queues,jobs'
    });
  });

  it('asks in full for what was not followed for a while', async () => {
    const nodes = cluster.watch({ topics: ['nodes'] });
    cluster.watch({ topics: ['queues'] });
    await pass(50);
    streams.tell({ seq: 7, full: ['queues', 'nodes'] });
    nodes.dispose();
    await pass(300);
    streams.tell({ seq: 9 });
    cluster.watch({ topics: ['nodes'] });
    await pass(50);
    expect(streams.last).toEqual({
      topics: 'queues,nodes',
      after: '9',
      have: 'queues'
    });
  });

  it('does not change with every card that scrolls by', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    for (let number = 0; number < 10; number += 1) {
      const card = cluster.watch({ jobs: [`job${number}`] });
      await pass(20);
      card.dispose();
    }
    cluster.watch({ jobs: ['job5'] });
    await pass(400);
    expect(streams.asked.length).toBeLessThanOrEqual(2);
    expect(streams.last.jobs).toBe('job5');
  });

  it('stays as it is when somebody looks at what is there already', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    const watch = cluster.watch({ topics: ['status'] });
    await pass(1_000);
    watch.dispose();
    await pass(1_000);
    expect(streams.asked).toHaveLength(1);
  });

  it('ends when nobody looks any more', async () => {
    const watch = cluster.watch({ topics: ['status'] });
    await pass(50);
    streams.tell({ full: ['status'], status: liveStatus() });
    watch.dispose();
    await pass(300);
    expect(streams.handler).toBeNull();
    expect(cluster.connection).toEqual({ state: 'idle' });
    cluster.watch({ topics: ['status'] });
    await pass(50);
    expect(cluster.connection).toEqual({ state: 'connecting' });
  });
});

describe('what is known', () => {
  it('is told once a frame, all together', async () => {
    cluster.watch({ topics: ['queues', 'jobs'] });
    await pass(100);
    changes.length = 0;
    streams.tell({ full: ['queues', 'jobs'], queues: [queueView()] });
    streams.tell({ jobs: [jobView({ number: 1 })] });
    streams.tell({ jobs: [jobView({ number: 2, mine: false })] });
    expect(changes).toEqual([]);
    await pass(20);
    expect(changes).toEqual([
      {
        connection: true,
        topics: new Set(['queues', 'jobs', 'mine']),
        jobs: new Set(['job1', 'job2'])
      }
    ]);
    await pass(1_000);
    expect(changes).toHaveLength(1);
  });

  it('is told in a hidden tab too, which draws no frames', async () => {
    jest.spyOn(window, 'requestAnimationFrame').mockReturnValue(1);
    cluster.watch({ topics: ['status'] });
    await pass(50);
    streams.tell({ status: liveStatus() });
    await pass(300);
    expect(changes.length).toBeGreaterThan(0);
    jest.restoreAllMocks();
  });

  it('has the jobs newest first, and the same array until they change', async () => {
    cluster.watch({ topics: ['jobs'] });
    await pass(50);
    streams.tell({
      full: ['jobs'],
      jobs: [jobView({ number: 3 }), jobView({ number: 11 })]
    });
    const jobs = cluster.jobs;
    expect(jobs.map(({ number }) => number)).toEqual([11, 3]);
    streams.tell({ type: 'alive' });
    expect(cluster.jobs).toBe(jobs);
    streams.tell({ jobs: [jobView({ number: 12 })] });
    expect(cluster.jobs.map(({ number }) => number)).toEqual([12, 11, 3]);
  });

  it('tells an empty list from one that has not come yet', async () => {
    cluster.watch({ topics: ['queues', 'mine'] });
    await pass(50);
    const known = () =>
      (['queues', 'mine', 'jobs'] as Topic[]).filter(topic =>
        cluster.knows(topic)
      );
    expect(known()).toEqual([]);
    streams.tell({ full: ['mine'] });
    expect(known()).toEqual(['mine']);
  });

  it("of all jobs tells one's own too, when none was left out", async () => {
    cluster.watch({ topics: ['jobs'] });
    await pass(50);
    streams.tell({ full: ['jobs'] });
    expect(cluster.knows('mine')).toBe(true);
    streams.tell({ full: ['jobs'], jobs_left_out: 1 });
    expect(cluster.knows('mine')).toBe(false);
  });

  it('stays for a moment when nobody looks, then the jobs are forgotten', async () => {
    const watch = cluster.watch({ topics: ['queues'], jobs: ['job1'] });
    await pass(50);
    streams.tell({
      full: ['queues'],
      queues: [queueView()],
      jobs: [jobView({ number: 1 })]
    });
    watch.dispose();
    await pass(5_000);
    expect(cluster.job('job1')).toBeDefined();
    changes.length = 0;
    await pass(6_000);
    expect(cluster.job('job1')).toBeUndefined();
    expect(cluster.jobs).toEqual([]);
    expect(cluster.queues).toHaveLength(1);
    expect(changes).toMatchObject([{ jobs: new Set(['job1']) }]);
  });

  it('says of a job that was asked for that it is not there', async () => {
    cluster.watch({ jobs: ['job1'] });
    await pass(50);
    expect(cluster.isGone('job1')).toBe(false);
    expect(cluster.isGone('no id')).toBe(true);
    streams.tell({ jobs_gone: ['job1'] });
    expect(cluster.isGone('job1')).toBe(true);
    await pass(20);
    expect(changes[changes.length - 1].jobs.has('job1')).toBe(true);
  });

  it('corrects for the clock of this machine by the message with the least delay', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    const ahead = (ms: number) => ({ time_us: (Date.now() + ms) * 1000 });
    streams.tell(ahead(4_200));
    streams.tell(ahead(5_000));
    streams.tell(ahead(3_000));
    expect(cluster.clockOffsetMs).toBeCloseTo(5_000);
    streams.tell(ahead(-600_000)); // the clock was set
    expect(cluster.clockOffsetMs).toBeCloseTo(-600_000);
  });
});

describe('the connection', () => {
  it('is told as it comes and goes', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    expect(cluster.connection).toEqual({ state: 'connecting' });
    expect(cluster.heardMs).toBeNull();
    streams.tell({ full: ['status'], status: liveStatus() });
    expect(cluster.connection).toEqual({ state: 'live' });
    const heardMs = Date.now();
    await pass(5_000);
    streams.handler!.onAway!(error(502));
    expect(cluster.connection).toEqual({
      state: 'away',
      reason: 'No scheduler.',
      hint: 'Wait.'
    });
    expect(cluster.heardMs).toBe(heardMs);
    expect(cluster.status).not.toBeNull(); // the last that is known stays
    await pass(20);
    changes.length = 0;
    streams.handler!.onAway!(error(502));
    await pass(20);
    expect(changes).toEqual([]); // nothing new
    streams.handler!.onAway!(null);
    streams.tell({ type: 'alive' });
    await pass(20);
    expect(cluster.connection).toEqual({ state: 'live' });
    expect(changes).toMatchObject([{ connection: true }]);
  });

  it('stays live while something else is asked for', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    streams.tell({ full: ['status'] });
    cluster.watch({ topics: ['nodes'] });
    await pass(50);
    expect(streams.asked).toHaveLength(2);
    expect(cluster.connection).toEqual({ state: 'live' });
  });

  it('stays away while something else is asked for, until something is heard', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    streams.handler!.onAway!(error(502));
    const watch = cluster.watch({ topics: ['nodes'] });
    await pass(50);
    expect(streams.asked).toHaveLength(2);
    expect(cluster.connection).toMatchObject({ state: 'away' });
    streams.tell({ full: ['status', 'nodes'] });
    expect(cluster.connection).toEqual({ state: 'live' });
    watch.dispose();
  });

  it('is not tried again by itself after an error that lasts, but when somebody asks for it', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    streams.handler!.onFailed!(error(403));
    await pass(60_000);
    expect(cluster.connection).toMatchObject({ state: 'away' });
    expect(streams.asked).toHaveLength(1);
    cluster.retry();
    expect(streams.retry).toHaveBeenCalled();
    expect(streams.asked).toHaveLength(2);
    expect(cluster.connection).toEqual({ state: 'connecting' });
  });

  it('begins anew when the stream has ended', async () => {
    cluster.watch({ topics: ['status'] });
    await pass(50);
    streams.tell({ seq: 5, full: ['status'] });
    streams.handler!.onEnded!();
    await pass(5_000);
    expect(streams.last).toEqual({
      topics: 'status',
      after: '5',
      have: 'status'
    });
  });
});

describe('step reports', () => {
  const at = (timeS: number, step: number): Progress =>
    progress({ time_us: NOW_US + timeS * 1e6, step });

  beforeEach(async () => {
    cluster.watch({ topics: ['jobs'] });
    await pass(50);
    streams.tell({ full: ['jobs'], jobs: [jobView({ progress: at(0, 10) })] });
  });

  const steps = () => cluster.track('job1').reports.map(({ step }) => step);

  it('of views and updates make one track', async () => {
    streams.tell({
      progress: [
        { job_id: 'job1', progress: at(1, 11), first_feedback_us: NOW_US }
      ]
    });
    streams.tell({ jobs: [jobView({ progress: at(1, 11) })] });
    streams.tell({ jobs: [jobView({ progress: at(2, 12) })] });
    expect(steps()).toEqual([10, 11, 12]);
    expect(cluster.track('job1').stepsPerS).toBeCloseTo(1);
    expect(cluster.job('job1')!.progress!.step).toBe(12);
    expect(cluster.track('none').reports).toEqual([]);
  });

  it('of earlier are loaded once, whoever asks', async () => {
    client.steps.mockResolvedValue({ steps: [at(-2, 8), at(0, 10)] });
    await Promise.all([cluster.loadSteps('job1'), cluster.loadSteps('job1')]);
    await cluster.loadSteps('job1');
    expect(client.steps).toHaveBeenCalledTimes(1);
    expect(steps()).toEqual([8, 10]);
    await pass(20);
    expect(changes[changes.length - 1].jobs.has('job1')).toBe(true);
  });

  it('of earlier that cannot be had make no noise, and are asked for again by the next', async () => {
    client.steps.mockRejectedValueOnce(error(502));
    await cluster.loadSteps('job1');
    expect(steps()).toEqual([10]);
    client.steps.mockResolvedValue({ steps: [at(-1, 9)] });
    await cluster.loadSteps('job1');
    expect(steps()).toEqual([9, 10]);
  });

  it('of other ranks do not get into the line', async () => {
    client.steps.mockResolvedValue({
      steps: [at(-2, 8), { ...at(-1.5, 2), rank: 1 }, at(-1, 9)]
    });
    await cluster.loadSteps('job1');
    expect(steps()).toEqual([8, 9, 10]);
  });

  it('that were missed in a gap are fetched', async () => {
    client.steps.mockResolvedValueOnce({ steps: [] });
    await cluster.loadSteps('job1');
    await pass(60_000);
    client.steps.mockResolvedValueOnce({ steps: [at(20, 20), at(40, 40)] });
    streams.tell({ jobs: [jobView({ progress: at(60, 60) })] });
    await pass(1);
    expect(steps()).toEqual([10, 20, 40, 60]);
  });
});

describe('requests', () => {
  const known = async (given: Partial<JobView>) => {
    cluster.watch({ jobs: ['job1'] });
    await pass(50);
    streams.tell({ jobs: [jobView(given)] });
    await pass(20);
    changes.length = 0;
  };

  it('have their answer taken in at once', async () => {
    await known({ seq: 5 });
    const answer = jobView({ seq: 6, state: 'stopping' });
    client.cancel.mockResolvedValue(answer);
    await expect(cluster.cancel('job1', 'too slow')).resolves.toBe(answer);
    expect(client.cancel).toHaveBeenCalledWith('job1', 'too slow');
    expect(cluster.job('job1')!.state).toBe('stopping');
    await pass(20);
    expect(changes).toMatchObject([{ jobs: new Set(['job1']) }]);
  });

  it('do not put back what is known to be newer', async () => {
    await known({ seq: 9, state: 'cancelled' });
    client.share.mockResolvedValue(jobView({ seq: 6, state: 'stopping' }));
    await cluster.share('job1', 'queue');
    expect(cluster.job('job1')!.state).toBe('cancelled');
  });

  it('do not make a job known that nobody looks at', async () => {
    client.cancel.mockResolvedValue(jobView());
    await cluster.cancel('job1');
    expect(cluster.jobs).toEqual([]);
  });

  it('pass on what goes wrong', async () => {
    client.cancel.mockRejectedValue(error(409));
    await expect(cluster.cancel('job1')).rejects.toMatchObject({
      status: 409
    });
  });
});
