import { LiveUpdate } from '../../api/schemas';
import { Topic } from '../../tokens';
import { IWanted } from '../interests';
import { forget, IClusterState, merge, NOTHING } from '../merge';
import { KEPT_JOBS, MOST_JOBS, newestFirst } from '../mergeJobs';
import {
  jobView,
  liveStatus,
  nodeView,
  NOW_US,
  progress,
  queueView
} from '../testing';

const EVERYTHING: Topic[] = ['status', 'queues', 'nodes', 'jobs', 'mine'];

const wants = (topics: Topic[], jobs: string[] = []): IWanted => ({
  topics,
  jobs
});

const update = (given: Partial<LiveUpdate> = {}): LiveUpdate => ({
  type: 'update',
  seq: 1,
  time_us: NOW_US,
  ...given
});

/** The state after some updates of a page that wants `wanted`. */
const after = (
  updates: Partial<LiveUpdate>[],
  wanted = wants(EVERYTHING)
): IClusterState =>
  updates.reduce<IClusterState>(
    (state, given) => merge(state, update(given), wanted).state,
    NOTHING
  );

const numbers = (state: IClusterState) =>
  newestFirst(state.jobs.values()).map(job => job.number);

describe('a list in full', () => {
  it('takes the place of the one before', () => {
    const state = after([
      {
        full: ['queues', 'nodes', 'jobs'],
        queues: [queueView({ name: 'root' }), queueView({ name: 'root.old' })],
        nodes: [nodeView({ name: 'old' })],
        jobs: [jobView({ number: 2 }), jobView({ number: 1 })]
      },
      {
        full: ['queues', 'nodes', 'jobs', 'mine'],
        queues: [queueView({ name: 'root' })],
        jobs: [jobView({ number: 3 })],
        jobs_left_out: 40
      }
    ]);
    expect(state.queues.map(({ name }) => name)).toEqual(['root']);
    expect(state.nodes).toEqual([]);
    expect(numbers(state)).toEqual([3]);
    expect(state.jobsLeftOut).toBe(40);
  });

  it('says so of its topics, of an empty one too', () => {
    const { state, topics } = merge(
      NOTHING,
      update({ full: ['mine'] }),
      wants(['mine'])
    );
    expect([...state.known]).toEqual(['mine']);
    expect([...topics]).toEqual(['mine']);
  });

  it('leaves in place what somebody watches, and what is in a list that it has not', () => {
    const first = update({
      full: ['jobs', 'mine'],
      jobs: [
        jobView({ number: 1, mine: false }),
        jobView({ number: 2, mine: false }),
        jobView({ number: 3, mine: true })
      ]
    });
    const wanted = wants(['jobs', 'mine'], ['job1']);
    const { state } = merge(NOTHING, first, wanted);
    const next = merge(state, update({ full: ['jobs'] }), wanted);
    expect(numbers(next.state)).toEqual([3, 1]);
    expect([...next.jobs]).toEqual(['job2']);
  });

  it("of one's own does not say how many of all jobs were left out", () => {
    const lists: Partial<LiveUpdate>[] = [
      { full: ['jobs'], jobs_left_out: 40 },
      { full: ['mine'], jobs_left_out: 2 }
    ];
    expect(after(lists).jobsLeftOut).toBe(40);
    expect(after(lists, wants(['mine'])).jobsLeftOut).toBe(2);
  });
});

describe('a change', () => {
  it('replaces things one by one and keeps their order', () => {
    const state = after([
      {
        full: ['queues'],
        queues: [queueView({ name: 'a' }), queueView({ name: 'b' })]
      },
      { queues: [queueView({ name: 'a', running: 7 })] }
    ]);
    expect(state.queues.map(({ name, running }) => [name, running])).toEqual([
      ['a', 7],
      ['b', 0]
    ]);
  });

  it('adds and removes nodes and jobs', () => {
    const state = after([
      {
        full: ['nodes', 'jobs'],
        nodes: [nodeView({ name: 'n1' }), nodeView({ name: 'n2' })],
        jobs: [jobView({ number: 1 })]
      },
      {
        nodes: [nodeView({ name: 'n3' })],
        nodes_gone: ['n1'],
        jobs: [jobView({ number: 12 }), jobView({ number: 9 })],
        jobs_gone: ['job1']
      }
    ]);
    expect(state.nodes.map(({ name }) => name)).toEqual(['n2', 'n3']);
    expect(numbers(state)).toEqual([12, 9]);
    expect([...state.gone]).toEqual(['job1']);
  });

  it('of nothing leaves everything the same object', () => {
    const before = after([{ full: EVERYTHING, jobs: [jobView()] }]);
    const { state, topics, jobs } = merge(
      before,
      update({ type: 'alive' }),
      wants(EVERYTHING)
    );
    expect(state).toEqual(before);
    expect(state.jobs).toBe(before.jobs);
    expect(state.queues).toBe(before.queues);
    expect(topics.size + jobs.size).toBe(0);
  });

  it('names the topics that it touches', () => {
    const touched = (given: Partial<LiveUpdate>) =>
      [...merge(NOTHING, update(given), wants(EVERYTHING)).topics].sort();
    expect(touched({ status: liveStatus() })).toEqual(['status']);
    expect(touched({ queues: [queueView()] })).toEqual(['queues']);
    expect(touched({ nodes_gone: ['n1'] })).toEqual(['nodes']);
    expect(touched({ jobs: [jobView({ mine: true })] })).toEqual([
      'jobs',
      'mine'
    ]);
    expect(touched({ jobs: [jobView({ mine: false })] })).toEqual(['jobs']);
  });

  it('that is a step report alone changes the job, not the list', () => {
    const before = after([{ full: ['jobs'], jobs: [jobView({ number: 1 })] }]);
    const report = progress({ step: 3 });
    const { state, topics, jobs } = merge(
      before,
      update({
        progress: [
          { job_id: 'job1', progress: report, first_feedback_us: NOW_US },
          { job_id: 'unknown', progress: report, first_feedback_us: null }
        ]
      }),
      wants(['jobs'])
    );
    expect(state.jobs.get('job1')).toMatchObject({
      progress: report,
      first_feedback_us: NOW_US
    });
    expect(before.jobs.get('job1')!.progress).toBeNull();
    expect([...jobs]).toEqual(['job1']);
    expect(topics.size).toBe(0);
    expect(state.jobs.has('unknown')).toBe(false);
  });

  it('brings back a job that was gone', () => {
    const state = after([
      { jobs_gone: ['job1'] },
      { jobs: [jobView({ number: 1 })] }
    ]);
    expect(state.gone.size).toBe(0);
  });
});

describe('a list that only grows', () => {
  const ended = (number: number) =>
    jobView({ number, state: 'succeeded', ended_us: NOW_US });

  it('forgets the oldest jobs that have ended, and counts them', () => {
    const oldest = [
      jobView({ number: 1, state: 'running' }),
      ended(2),
      ended(3)
    ];
    const more = Array.from({ length: MOST_JOBS - 3 }, (_, at) =>
      ended(at + 4)
    );
    const wanted = wants(['jobs'], ['job2']);
    const full = { full: ['jobs' as const], jobs: [...more, ...oldest] };
    const state = after([{ ...full, jobs_left_out: 5 }], wanted);
    expect(state.jobs.size).toBe(MOST_JOBS);
    const next = merge(state, update({ jobs: [ended(MOST_JOBS + 1)] }), wanted);
    expect(next.state.jobs.size).toBe(KEPT_JOBS + 2); // one still runs, one is watched
    expect(numbers(next.state).slice(-2)).toEqual([2, 1]);
    expect(numbers(next.state)[0]).toBe(MOST_JOBS + 1);
    expect(next.state.jobs.size + next.state.jobsLeftOut).toBe(
      MOST_JOBS + 1 + 5
    );
    expect(next.jobs.has('job3')).toBe(true);
  });
});

describe('forgetting', () => {
  const state = after([
    {
      full: EVERYTHING,
      queues: [queueView()],
      jobs: [
        jobView({ number: 1, mine: true }),
        jobView({ number: 2, mine: false }),
        jobView({ number: 3, mine: false })
      ]
    },
    { jobs_gone: ['job8', 'job9'] }
  ]);

  it('keeps the jobs of lists and watchers that are left', () => {
    const left = (wanted: IWanted) => numbers(forget(state, wanted).state);
    expect(left(wants(['jobs']))).toEqual([3, 2, 1]);
    expect(left(wants(['mine']))).toEqual([1]);
    expect(left(wants(['mine'], ['job3']))).toEqual([3, 1]);
    expect(left(wants([]))).toEqual([]);
  });

  it('tells which jobs it dropped', () => {
    const { jobs, topics } = forget(state, wants(['mine']));
    expect([...jobs].sort()).toEqual(['job2', 'job3']);
    expect([...topics]).toEqual(['jobs']);
  });

  it('no longer knows a list that it dropped, but still the queues', () => {
    const { known } = forget(state, wants(['mine'])).state;
    expect([...known].sort()).toEqual(['mine', 'nodes', 'queues', 'status']);
  });

  it('remembers that a job is gone for those alone who still ask', () => {
    expect([...forget(state, wants([], ['job8'])).state.gone]).toEqual([
      'job8'
    ]);
  });
});

describe('any split of what happens into updates', () => {
  /** Numbers that look random and are the same every time. */
  function random(seed: number): () => number {
    return () => {
      seed = (seed * 1664525 + 1013904223) % 4294967296;
      return seed / 4294967296;
    };
  }

  /** A cluster that changes, and what it would tell: everything at once, or what changed since it was last asked. */
  class Truth {
    constructor(private readonly next: () => number) {}

    readonly jobs = new Map<string, ReturnType<typeof jobView>>();
    readonly nodes = new Map<string, ReturnType<typeof nodeView>>();
    readonly queues = ['a', 'b', 'c'].map(name => queueView({ name }));
    private seq = 0;
    private dirty = new Set<string>();
    private gone = new Set<string>();
    private steps = new Set<string>();

    change(): void {
      this.seq += 1;
      const kind = this.pick(6);
      const number = 1 + this.pick(12);
      const id = `job${number}`;
      const job = this.jobs.get(id);
      if (kind === 0 && job) {
        this.jobs.delete(id);
        this.note(id, this.gone);
      } else if (kind === 1 && job) {
        const report = progress({ step: this.seq, time_us: this.seq });
        this.jobs.set(id, { ...job, progress: report });
        this.steps.add(id);
      } else if (kind === 2) {
        const name = `n${this.pick(4)}`;
        this.nodes.set(name, nodeView({ name, rack: String(this.seq) }));
        this.note(name, this.dirty);
      } else if (kind === 3) {
        const name = `n${this.pick(4)}`;
        if (this.nodes.delete(name)) {
          this.note(name, this.gone);
        }
      } else if (kind === 4) {
        const at = this.pick(3);
        this.queues[at] = { ...this.queues[at], running: this.seq };
        this.dirty.add(this.queues[at].name);
      } else {
        const mine = number % 2 === 0;
        this.jobs.set(
          id,
          jobView({ ...job, number, mine, seq: this.seq, name: `${this.seq}` })
        );
        this.note(id, this.dirty);
      }
    }

    full(): LiveUpdate {
      this.forget();
      return update({
        seq: this.seq,
        full: ['queues', 'nodes', 'jobs'],
        queues: [...this.queues],
        nodes: [...this.nodes.values()],
        jobs: newestFirst(this.jobs.values())
      });
    }

    changes(): LiveUpdate {
      const isDirty = ({ id }: { id: string }) => this.dirty.has(id);
      const made = update({
        seq: this.seq,
        queues: this.queues.filter(({ name }) => this.dirty.has(name)),
        nodes: [...this.nodes.values()].filter(({ name }) =>
          this.dirty.has(name)
        ),
        nodes_gone: [...this.gone].filter(name => name.startsWith('n')),
        jobs: newestFirst(this.jobs.values()).filter(isDirty),
        jobs_gone: [...this.gone].filter(id => id.startsWith('job')),
        progress: [...this.steps]
          .filter(id => !this.dirty.has(id) && this.jobs.has(id))
          .map(id => ({
            job_id: id,
            progress: this.jobs.get(id)!.progress!,
            first_feedback_us: null
          }))
      });
      this.forget();
      return made;
    }

    private note(id: string, kind: Set<string>): void {
      this.dirty.delete(id);
      this.gone.delete(id);
      kind.add(id);
    }

    private forget(): void {
      this.dirty = new Set();
      this.gone = new Set();
      this.steps = new Set();
    }

    private pick(count: number): number {
      return Math.floor(this.next() * count);
    }
  }

  const plain = (state: IClusterState) => ({
    queues: state.queues,
    nodes: [...state.nodes].sort((one, other) =>
      one.name.localeCompare(other.name)
    ),
    jobs: newestFirst(state.jobs.values())
  });

  it.each(Array.from({ length: 60 }, (_, seed) => seed))(
    'ends in what everything at once would have told (seed %s)',
    seed => {
      const next = random(seed + 1);
      const truth = new Truth(next);
      const wanted = wants(['queues', 'nodes', 'jobs']);
      let state = merge(NOTHING, truth.full(), wanted).state;
      for (let changes = 0; changes < 200; changes += 1) {
        truth.change();
        const chance = next();
        if (chance < 0.4) {
          state = merge(state, truth.changes(), wanted).state;
        } else if (chance < 0.43) {
          state = merge(state, truth.full(), wanted).state; // a resync
        }
      }
      state = merge(state, truth.changes(), wanted).state;
      expect(truth.jobs.size + truth.nodes.size).toBeGreaterThan(0);
      expect(plain(state)).toEqual(
        plain(merge(NOTHING, truth.full(), wanted).state)
      );
    }
  );
});
