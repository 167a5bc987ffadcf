import { OutputAreaModel } from '@jupyterlab/outputarea';

import { CellOp } from '../../api/schemas';
import { OutputSink } from '../sink';

const card = (state: string): CellOp => ({
  op: 'card',
  data: { 'text/plain': state }
});
const out = (text: string): CellOp => ({ op: 'stream', name: 'stdout', text });
const err = (text: string): CellOp => ({ op: 'stream', name: 'stderr', text });
const show = (text: string, display_id?: string): CellOp => ({
  op: 'display',
  data: { 'text/plain': text },
  display_id
});

function drawn(batches: CellOp[][], executionCount: number | null = 7) {
  const model = new OutputAreaModel({ trusted: true });
  model.add({ output_type: 'stream', name: 'stdout', text: 'stale' });
  const sink = new OutputSink(model, executionCount);
  batches.forEach((ops, index) => sink.apply(ops, index === 0));
  return { model, sink, outputs: model.toJSON() };
}

/** Outputs in short: text of streams and displays, in order. */
function texts(outputs: any[]): string[] {
  return outputs.map(
    output => output.text ?? output.data?.['text/plain'] ?? output.ename
  );
}

describe('OutputSink', () => {
  it('replaces what stood in the cell', () => {
    const { outputs } = drawn([[card('running'), out('a')]]);
    expect(texts(outputs)).toEqual(['running', 'a']);
  });

  it('draws a newer card in the place of the old one', () => {
    const { outputs } = drawn([
      [card('pending'), out('a')],
      [card('running'), out('b')]
    ]);
    expect(texts(outputs)).toEqual(['running', 'ab']);
  });

  it('joins text of one stream and keeps the streams apart', () => {
    const { outputs } = drawn([
      [card('running'), out('a\n'), err('w\n'), out('b\n'), out('c\n')]
    ]);
    expect(outputs.slice(1)).toEqual([
      { output_type: 'stream', name: 'stdout', text: 'a\n' },
      { output_type: 'stream', name: 'stderr', text: 'w\n' },
      { output_type: 'stream', name: 'stdout', text: 'b\nc\n' }
    ]);
  });

  it('takes a line back at a carriage return, over batches too', () => {
    const { outputs } = drawn([
      [card('running'), out('step 1')],
      [out('\rstep 2')]
    ]);
    expect(texts(outputs)).toEqual(['running', 'step 2']);
  });

  it('updates all displays of an id and no other', () => {
    const { outputs } = drawn([
      [card('running'), show('one', 'x'), show('two', 'y'), show('one', 'x')],
      [{ op: 'update', data: { 'text/plain': 'new' }, display_id: 'x' }]
    ]);
    expect(texts(outputs)).toEqual(['running', 'new', 'two', 'new']);
  });

  it('leaves an update of an unknown display alone', () => {
    const { outputs } = drawn([
      [card('running'), { op: 'update', data: {}, display_id: 'z' }]
    ]);
    expect(texts(outputs)).toEqual(['running']);
  });

  it('clears everything but the card', () => {
    const { outputs } = drawn([
      [card('running'), out('a'), show('d', 'x'), { op: 'clear' }, out('b')],
      [{ op: 'update', data: { 'text/plain': 'gone' }, display_id: 'x' }]
    ]);
    expect(texts(outputs)).toEqual(['running', 'b']);
  });

  it('clears with wait only when the next output comes', () => {
    const first = [card('running'), out('a'), { op: 'clear', wait: true }];
    expect(texts(drawn([first as CellOp[]]).outputs)).toEqual(['running', 'a']);
    const { outputs } = drawn([first as CellOp[], [out('b')]]);
    expect(texts(outputs)).toEqual(['running', 'b']);
  });

  it('keeps the pending clear when only the card changes', () => {
    const { outputs } = drawn([
      [card('running'), out('a'), { op: 'clear', wait: true }],
      [card('succeeded')]
    ]);
    expect(texts(outputs)).toEqual(['succeeded', 'a']);
  });

  it('gives a result the number of the run', () => {
    const { outputs } = drawn([
      [card('running'), { op: 'result', data: { 'text/plain': '42' } }]
    ]);
    expect(outputs[1]).toEqual({
      output_type: 'execute_result',
      data: { 'text/plain': '42' },
      metadata: {},
      execution_count: 7
    });
  });

  it('shows the error of a job that failed', () => {
    const { outputs, sink } = drawn([
      [
        card('failed'),
        { op: 'error', ename: 'ValueError', evalue: 'no', traceback: ['t'] },
        { op: 'done' }
      ]
    ]);
    expect(outputs[1]).toEqual({
      output_type: 'error',
      ename: 'ValueError',
      evalue: 'no',
      traceback: ['t']
    });
    expect(sink.isDone).toBe(true);
  });

  it('begins from an empty cell after a lost connection', () => {
    const model = new OutputAreaModel({ trusted: true });
    const sink = new OutputSink(model, null);
    sink.apply([card('running'), out('a'), show('d', 'x')], true);
    sink.apply([card('running'), out('a'), out('b')], true);
    expect(texts(model.toJSON())).toEqual(['running', 'ab']);
  });
});
