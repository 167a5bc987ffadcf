import { isCellInView } from '../cellInView';
import { FakeCell, FakeNotebook, FakeTracker } from './notebooks';

const job = { cell_id: 'c1' };
let cell: FakeCell;
let notebook: FakeNotebook;
let tracker: FakeTracker;

function placed(node: Element, top: number, bottom: number): void {
  node.getBoundingClientRect = () => ({ top, bottom }) as DOMRect;
}

beforeEach(() => {
  cell = new FakeCell('c1');
  notebook = new FakeNotebook('a.ipynb', [cell]);
  tracker = new FakeTracker([notebook]);
  placed(notebook.content.node, 0, 500);
  placed(cell.node, 100, 200);
});

const isSeen = () => isCellInView(tracker.tracker, job);

test('a cell within the notebook that is shown is in view, also a part of it', () => {
  expect(isSeen()).toBe(true);
  placed(cell.node, 490, 700);
  expect(isSeen()).toBe(true);
});

test('a cell that was scrolled away is not, nor one that is not drawn', () => {
  placed(cell.node, 510, 700);
  expect(isSeen()).toBe(false);
  placed(cell.node, 100, 200);
  cell.isAttached = false;
  expect(isSeen()).toBe(false);
});

test('nothing is in view of a notebook behind another, of a hidden tab, or without notebooks', () => {
  notebook.isVisible = false;
  expect(isSeen()).toBe(false);
  notebook.isVisible = true;
  const hidden = jest
    .spyOn(document, 'visibilityState', 'get')
    .mockReturnValue('hidden');
  expect(isSeen()).toBe(false);
  hidden.mockRestore();
  expect(isCellInView(null, job)).toBe(false);
  expect(isCellInView(tracker.tracker, { cell_id: null })).toBe(false);
  expect(isCellInView(tracker.tracker, { cell_id: 'other' })).toBe(false);
});
