import { Progress } from '../../api/schemas';
import { progress } from '../testing';
import { MAX_REPORTS, Track } from '../track';

/** A report at so many seconds. */
const at = (
  timeS: number,
  step: number,
  metrics: Progress['metrics'] = {},
  total: number | null = 1000
) => progress({ time_us: timeS * 1e6, step, total, metrics });

const track = (...reports: Progress[]): Track => {
  const made = new Track();
  reports.forEach(report => made.add(report));
  return made;
};

describe('rate and time left', () => {
  it('are unknown before the second report', () => {
    expect(new Track().stepsPerS).toBeNull();
    expect(new Track().leftS).toBeNull();
    expect(track(at(0, 5)).stepsPerS).toBeNull();
    expect(track(at(0, 5)).leftS).toBeNull();
  });

  it('are those of the newest half minute', () => {
    const slow = [0, 10, 20, 30, 40, 50, 60].map(s => at(s, s));
    const fast = [70, 80, 90, 100].map(s => at(s, 60 + (s - 60) * 10));
    const made = track(...slow, ...fast);
    expect(made.stepsPerS).toBeCloseTo(10);
    expect(made.leftS).toBeCloseTo((1000 - 460) / 10);
  });

  it('are those of the last two reports when these are farther apart', () => {
    const made = track(at(0, 0), at(100, 200), at(300, 300));
    expect(made.stepsPerS).toBeCloseTo(0.5);
  });

  it('hold with many reports a second', () => {
    const made = new Track();
    for (let step = 0; step < 50_000; step += 1) {
      made.add(at(step / 100, step, {}, 100_000));
    }
    expect(made.stepsPerS).toBeCloseTo(100, 0);
    expect(made.leftS).toBeCloseTo(500, 0);
  });

  it('have no end without a total, none at a standstill, and are over at the last step', () => {
    expect(track(at(0, 0, {}, null), at(1, 1, {}, null)).leftS).toBeNull();
    expect(track(at(0, 5), at(10, 5)).stepsPerS).toBe(0);
    expect(track(at(0, 5), at(10, 5)).leftS).toBeNull();
    expect(track(at(0, 999), at(1, 1000)).leftS).toBe(0);
    expect(track(at(0, 999), at(1, 1002)).leftS).toBe(0);
  });
});

describe('metrics', () => {
  it('are those of the newest report, loss first', () => {
    const made = track(at(0, 0, { old: 1 }), at(1, 1, { acc: 0, loss: 2 }));
    expect(made.metrics).toEqual(['loss', 'acc']);
    expect(track(at(0, 0, { acc: 1 })).metrics).toEqual(['acc']);
    expect(new Track().metrics).toEqual([]);
  });

  it('give points in seconds, without those that are no finite number', () => {
    const made = track(
      at(1, 1, { loss: 3 }),
      at(2, 2, { loss: 'nan' }),
      at(3, 3, { loss: 'inf' }),
      at(4, 4, { acc: 1 }),
      at(5, 5, { loss: 1 })
    );
    expect(made.points('loss')).toEqual([
      [1, 3],
      [5, 1]
    ]);
    expect(made.points('none')).toEqual([]);
  });
});

describe('reports', () => {
  it('that are not newer are left out', () => {
    const made = track(at(2, 2));
    expect(made.add(at(2, 2))).toBe(false);
    expect(made.add(at(1, 1))).toBe(false);
    expect(made.reports).toHaveLength(1);
  });

  it('of a new attempt, which counts from the beginning, start anew', () => {
    const made = track(at(0, 0), at(10, 100), at(20, 5));
    expect(made.reports.map(({ step }) => step)).toEqual([5]);
    expect(made.stepsPerS).toBeNull();
    made.add(at(21, 6));
    expect(made.stepsPerS).toBeCloseTo(1);
  });

  it('are thinned out evenly, and the newest always stays', () => {
    for (const count of [240, 241, 1_000, 5_555, 20_000]) {
      const made = new Track();
      for (let step = 0; step < count; step += 1) {
        made.add(at(step, step));
      }
      const steps = made.reports.map(({ step }) => step);
      const apart = steps.slice(1, -1).map((step, at) => step - steps[at]);
      expect(steps.length).toBeLessThanOrEqual(MAX_REPORTS);
      expect(steps.length).toBeGreaterThan(MAX_REPORTS / 2);
      expect(steps[0]).toBe(0);
      expect(steps[steps.length - 1]).toBe(count - 1);
      expect(new Set(apart).size).toBe(1);
    }
  });

  it('are another array after each change, so that a view can tell', () => {
    const made = track(at(0, 0));
    const before = made.reports;
    made.add(at(1, 1));
    expect(made.reports).not.toBe(before);
    expect(before).toHaveLength(1);
  });
});

describe('earlier reports', () => {
  it('are put in their places by time, each once', () => {
    const made = track(at(5, 50), at(6, 60));
    expect(made.merge([at(1, 10), at(5, 50), at(3, 30)])).toBe(true);
    expect(made.reports.map(({ step }) => step)).toEqual([10, 30, 50, 60]);
  });

  it('that are all known change nothing', () => {
    const made = track(at(5, 50), at(6, 60));
    expect(made.merge([at(5, 50)])).toBe(false);
    expect(made.merge([])).toBe(false);
  });

  it('of an attempt before do not come back', () => {
    const made = track(at(10, 1), at(11, 2));
    made.merge([at(1, 500), at(2, 600)]);
    expect(made.reports.map(({ step }) => step)).toEqual([1, 2]);
  });

  it('do not change the rate of the newest', () => {
    const made = new Track();
    for (let step = 0; step < 5_000; step += 1) {
      made.add(at(1000 + step, step * 2, {}, null));
    }
    made.merge([at(1, 0)]);
    expect(made.stepsPerS).toBeCloseTo(2);
  });
});
