import { Interests, MAX_JOBS } from '../interests';

it('the union of interests has every topic and job once, in a fixed order', () => {
  const interests = new Interests(() => {});
  interests.watch({ topics: ['mine', 'queues'], jobs: ['b'] });
  interests.watch({ topics: ['status', 'queues'], jobs: ['a', 'b'] });
  expect(interests.wanted()).toEqual({
    topics: ['status', 'queues', 'mine'],
    jobs: ['a', 'b']
  });
});

it('what nobody looks at any more is not in it', () => {
  const interests = new Interests(() => {});
  const one = interests.watch({ topics: ['nodes'], jobs: ['a'] });
  const other = interests.watch({ jobs: ['a'] });
  one.dispose();
  expect(interests.wanted()).toEqual({ topics: [], jobs: ['a'] });
  other.dispose();
  expect(interests.wanted()).toEqual({ topics: [], jobs: [] });
});

it('a watch can look at something else, until it is disposed', () => {
  const changes = jest.fn();
  const interests = new Interests(changes);
  const watch = interests.watch({ jobs: ['a'] });
  watch.update({ topics: ['jobs'] });
  expect(interests.wanted()).toEqual({ topics: ['jobs'], jobs: [] });
  watch.dispose();
  watch.dispose();
  watch.update({ topics: ['nodes'] });
  expect(watch.isDisposed).toBe(true);
  expect(interests.wanted().topics).toEqual([]);
  expect(changes).toHaveBeenCalledTimes(3);
});

it('of too many jobs those win that were asked for last', () => {
  const interests = new Interests(() => {});
  const first = interests.watch({ jobs: ['first'] });
  for (let number = 0; number < MAX_JOBS; number += 1) {
    interests.watch({ jobs: [`later${number}`] });
  }
  expect(interests.wanted().jobs).toHaveLength(MAX_JOBS);
  expect(interests.wanted().jobs).not.toContain('first');
  first.update({ jobs: ['first'] });
  expect(interests.wanted().jobs).toContain('first');
  expect(interests.wanted().jobs).not.toContain('later0');
});

it('what cannot be the id of a job is not asked for: it would spoil the request for all others', () => {
  const interests = new Interests(() => {});
  interests.watch({ jobs: ['a,b', '', '../x', 'A'.repeat(65), 'j0b'] });
  expect(interests.wanted().jobs).toEqual(['j0b']);
});
