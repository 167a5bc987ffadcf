import { OutputAreaModel } from '@jupyterlab/outputarea';

import { CARD_MIME, cardOf, isWhole, submitsItself } from '../card';

function cell(card: object, ...more: any[]): OutputAreaModel {
  const model = new OutputAreaModel({ trusted: true });
  const data = { [CARD_MIME]: card, 'text/plain': 'job 3' } as any;
  model.fromJSON([
    { output_type: 'display_data', data, metadata: {} },
    ...more
  ]);
  return model;
}

const saved = {
  version: 1,
  job_id: '01abc',
  number: 3,
  state: 'running',
  drawing: { fills_cell: true, complete: false, execution_count: 2 }
};
const drawn = (how: object) => ({
  ...saved,
  drawing: { ...saved.drawing, ...how }
});
const error = {
  output_type: 'error',
  ename: 'E',
  evalue: '',
  traceback: [] as string[]
};

describe('cardOf', () => {
  it('finds the job that a cell shows', () => {
    const card = cardOf(cell(saved));
    expect(card?.jobId).toBe('01abc');
    expect(card?.number).toBe(3);
    expect(card?.drawing.execution_count).toBe(2);
  });

  it.each([
    ['a cell that has more than the job', { ...saved, drawing: {} }],
    ['a card from before drawings', { ...saved, drawing: undefined }],
    ['a card of another version', { ...saved, version: 9 }],
    ['a card without a job', { ...saved, job_id: 5 }],
    ['a card whose job leads elsewhere', { ...saved, job_id: '../queues' }],
    ['a card of an endless job', { ...saved, job_id: 'x'.repeat(3000) }],
    ['a drawing that knows no end', drawn({ text_bytes: null })],
    ['a drawing of a rank before the first', drawn({ rank: -1 })],
    ['a drawing of a later version', drawn({ slowly: true })],
    ['a drawing with something of every object', drawn({ constructor: 1 })],
    ['a drawing without end', drawn({ display_prefix: [[[]]] })]
  ])('finds none in %s', (_, card) => {
    expect(cardOf(cell(card))).toBeNull();
  });

  it('takes over what a kernel writes, and nothing else', () => {
    const sent = { names: ['net'], asked_back: ['loss'], asks_limits: true };
    const said = { notes: ['n'], warnings: ['w'], limits: 'l', sent };
    expect(cardOf(cell({ ...saved, ...said }))!.saved).toEqual(said);
    const wrong = { notes: [[1], 'n'], warnings: {}, limits: 3, sent: [sent] };
    expect(cardOf(cell({ ...saved, ...wrong }))!.saved).toEqual({
      notes: ['n'],
      warnings: [],
      limits: '',
      sent: { names: [], asked_back: [], asks_limits: false }
    });
  });

  it('finds none in an empty cell and in one that begins with text', () => {
    expect(cardOf(new OutputAreaModel({ trusted: true }))).toBeNull();
    const model = new OutputAreaModel({ trusted: true });
    model.add({ output_type: 'stream', name: 'stdout', text: 'hello' });
    expect(cardOf(model)).toBeNull();
  });
});

describe('isWhole', () => {
  const whole = (state: string, complete: boolean, ...more: any[]) => {
    const drawing = { ...saved.drawing, complete };
    const model = cell({ ...saved, state, drawing }, ...more);
    return isWhole(cardOf(model)!, model);
  };

  it('is not while the job runs, nor before its last output was drawn', () => {
    expect(whole('running', false)).toBe(false);
    expect(whole('succeeded', false)).toBe(false);
  });

  it('is with the last output of a job that ended well', () => {
    expect(whole('succeeded', true)).toBe(true);
  });

  it('takes the error too for one that did not', () => {
    expect(whole('failed', true)).toBe(false);
    expect(whole('failed', true, error)).toBe(true);
    expect(whole('cancelled', true, error)).toBe(true);
  });
});

describe('submitsItself', () => {
  it.each([
    ['%%submit --gpus 2\nx', true],
    ['\n  %%submit\nx', true],
    ['%submit f(x)', false],
    ['# %%submit\nx', false],
    ['%%submitted\nx', false]
  ])('%j: %s', (source, expected) => {
    expect(submitsItself(source)).toBe(expected);
  });
});
