import { Signal } from '@lumino/signaling';

import { DocumentFile } from '../document';

const OLD = '2026-03-01T10:00:00Z';
const NEW = '2026-03-01T10:00:01Z';

/** A notebook's file that was saved last at `there`, as the page had it at OLD. */
function file(there: string, work: () => Promise<void>) {
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
    model: { dirty: false, stateChanged: new Signal<object, void>({}) },
    contentsModel: { last_modified: OLD, writable: true },
    save: doing('save'),
    revert: doing('revert')
  };
  const contents = { get: async () => ({ last_modified: there }) };
  return { done, file: new DocumentFile(context as any, contents as any) };
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
  const { file: same, done: saved } = file(OLD, badly);
  await expect(same.save()).resolves.toBeUndefined();
  expect([done, saved]).toEqual([['revert'], ['save']]);
});
