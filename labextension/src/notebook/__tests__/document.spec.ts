import { Signal } from '@lumino/signaling';

import { DocumentFile } from '../document';

const OLD = '2026-03-01T10:00:00Z';
const NEW = '2026-03-01T10:00:01Z';

/** A notebook's file that was saved last at `there`, as the page had it at OLD. */
function file(there: string, work: () => Promise<void>, dirty = false) {
  const done: string[] = [];
  const doing = (what: string) => () => {
    done.push(what);
    return work();
  };
  const context = {
    path: 'a.ipynb',
    localPath: 'a.ipynb',
    isDisposed: false,
    saveState: new Signal<object, string>({}),
    model: { dirty, stateChanged: new Signal<object, void>({}) },
    contentsModel: { last_modified: OLD, writable: true },
    save: doing('save'),
    revert: doing('revert')
  };
  const contents = { get: async () => ({ last_modified: there }) };
  const say = (state: string) => context.saveState.emit(state);
  return {
    done,
    context,
    say,
    file: new DocumentFile(context as any, contents as any)
  };
}

const well = () => Promise.resolve();
const badly = () => Promise.reject(new Error('disk full'));

test('takes what another page has saved, and saves nothing over it', async () => {
  const { done, file: newer } = file(NEW, well);
  await expect(newer.takeNewer()).resolves.toBe(true);
  await newer.save();
  expect(done).toEqual(['revert']);
});

test('what goes wrong with the file is told by Lab, and stops nothing else', async () => {
  const { file: newer, done } = file(NEW, badly);
  await expect(newer.takeNewer()).resolves.toBe(false);
  const { file: same, done: saved } = file(OLD, badly, true);
  await expect(same.save()).resolves.toBeUndefined();
  expect([done, saved]).toEqual([['revert'], ['save']]);
});

test('what is asked to be saved while it is being saved is saved once more, by one for all', async () => {
  let end: () => void = () => undefined;
  const long = () => new Promise<void>(resolve => (end = resolve));
  const { file: same, done, say } = file(OLD, long, true);
  const first = same.save();
  await new Promise(resolve => setTimeout(resolve, 0));
  say('started');
  const others = [same.save(), same.save(), same.save()];
  await new Promise(resolve => setTimeout(resolve, 0));
  expect(done).toEqual(['save']);
  say('completed');
  end();
  await first;
  await new Promise(resolve => setTimeout(resolve, 0));
  end();
  await Promise.all(others);
  expect(done).toEqual(['save', 'save']);
});

test('somebody else who begins to save while the file is looked at is waited for', async () => {
  const { file: same, done, say, context } = file(OLD, well, true);
  const saving = same.save();
  say('started');
  await new Promise(resolve => setTimeout(resolve, 0));
  expect(done).toEqual([]);
  context.model.dirty = false; // theirs has all
  say('completed');
  await saving;
  expect(done).toEqual([]);
});
