import { StateDB } from '@jupyterlab/statedb';

import { DEFAULTS, readState, toggled, ViewState } from '../viewState';

describe('what the sidebar remembers', () => {
  it('is there after a reload', async () => {
    const database = new StateDB();
    const before = new ViewState(database);
    await before.restore();
    before.set({ scope: 'all', closedSections: ['topology'] });
    before.set({ heights: { queues: 120 } });
    const after = new ViewState(database);
    await after.restore();
    expect(after.current).toEqual({
      ...DEFAULTS,
      scope: 'all',
      closedSections: ['topology'],
      heights: { queues: 120 }
    });
  });

  it('is kept for the page without a database', async () => {
    const view = new ViewState();
    await view.restore();
    view.set({ filter: 'train' });
    expect(view.current.filter).toBe('train');
  });

  it('does not undo what the user did before it was read', async () => {
    const database = new StateDB();
    const before = new ViewState(database);
    before.set({ scope: 'all', filter: 'old' });
    const after = new ViewState(database);
    const restored = after.restore();
    after.set({ filter: 'new' });
    await restored;
    expect(after.current).toMatchObject({ scope: 'all', filter: 'new' });
  });

  it('survives a database that does not answer', async () => {
    const database = new StateDB();
    database.fetch = () => Promise.reject(new Error('away'));
    database.save = () => Promise.reject(new Error('away'));
    const view = new ViewState(database);
    await view.restore();
    view.set({ scope: 'all' });
    expect(view.current.scope).toBe('all');
  });

  it('begins as the settings say, until something else is kept', async () => {
    const database = new StateDB();
    const before = new ViewState(database, { scope: 'all' });
    await before.restore();
    expect(before.current.scope).toBe('all');
    before.set({ scope: 'mine' });
    const after = new ViewState(database, { scope: 'all' });
    await after.restore();
    expect(after.current.scope).toBe('mine');
  });

  it('tells when it changes', async () => {
    const view = new ViewState();
    let count = 0;
    view.changed.connect(() => (count += 1));
    view.set({ scope: 'all' });
    expect(count).toBe(1);
  });

  it.each([
    [undefined, {}],
    ['nonsense', {}],
    [{ scope: 'theirs', filter: 7, heights: [] }, { heights: {} }],
    [
      { closedSections: ['jobs', 'cellar'], heights: { jobs: 100, roof: 3 } },
      { closedSections: ['jobs'], heights: { jobs: 100 } }
    ],
    [
      {
        closedQueues: ['a', 1],
        openTypes: ['b'],
        closedGroups: ['ended', 'x']
      },
      { closedQueues: ['a'], openTypes: ['b'], closedGroups: ['ended'] }
    ]
  ])('takes of %j what is right', (kept, state) => {
    expect(readState(kept)).toEqual(state);
  });
});

test('toggling adds what is missing and removes what is there', () => {
  expect(toggled(['a'], 'b')).toEqual(['a', 'b']);
  expect(toggled(['a', 'b'], 'a')).toEqual(['b']);
});
