import { OutputAreaModel } from '@jupyterlab/outputarea';

import { CellOp, Claimed } from '../../api/schemas';
import { IChannelHandler, IStreams } from '../../api/streams';
import { CellFiller } from '../filler';
import { Turns } from '../turns';

type Told = Pick<Claimed, 'granted' | 'holder'>;

/** Streams of which a test says what comes. */
class FakeStreams {
  claims: string[] = [];
  released: string[] = [];
  handler: IChannelHandler<CellOp> | null = null;
  granted = false;
  tell: (told: Told) => void = () => undefined;

  claim(key: string, role: string, onChange: (told: Told) => void) {
    this.claims.push(`${role} ${key}`);
    this.tell = told => {
      this.granted = told.granted;
      onChange(told);
    };
    const streams = this as FakeStreams;
    return {
      isDisposed: false,
      get granted() {
        return streams.granted;
      },
      dispose: () => this.released.push(key)
    };
  }

  open(handler: IChannelHandler<any>) {
    this.handler = handler;
    return { isDisposed: false, dispose: () => (this.handler = null) };
  }

  /** What the server sends on a channel that was just (re)opened. */
  begin(...ops: CellOp[]) {
    this.handler!.start();
    void this.handler!.onItems(ops);
  }
}

function filling(mayFill = true, turns = new Turns(1)) {
  const streams = new FakeStreams();
  const model: any = {
    outputs: new OutputAreaModel({ trusted: true }),
    executionCount: null,
    executionState: 'idle'
  };
  model.outputs.add({ output_type: 'stream', name: 'stdout', text: 'old' });
  const ends: boolean[] = [];
  const filler = new CellFiller({
    streams: streams as unknown as IStreams,
    turns,
    model,
    key: 'a.ipynb#c#j',
    jobId: 'j',
    drawing: { fills_cell: true, execution_count: 4 },
    card: null,
    mayFill: async () => mayFill,
    onBegin: () => undefined,
    onEnd: whole => ends.push(whole)
  });
  const grant = async () => {
    streams.tell({ granted: true });
    await Promise.resolve();
    await Promise.resolve();
  };
  return { streams, model, filler, ends, grant };
}

const card: CellOp = { op: 'card', data: { 'text/plain': 'card' } };
const text = (model: any) =>
  model.outputs
    .toJSON()
    .map((output: any) => output.text ?? output.data['text/plain']);

describe('CellFiller', () => {
  it('leaves the cell alone until the claim is granted', () => {
    const { streams, model } = filling();
    expect(streams.claims).toEqual(['log a.ipynb#c#j']);
    streams.tell({ granted: false, holder: 'kernel' });
    expect(streams.handler).toBeNull();
    expect(text(model)).toEqual(['old']);
  });

  it('draws to the end, numbers the cell and keeps it until told to let go', async () => {
    const { streams, model, filler, ends, grant } = filling();
    await grant();
    streams.begin(card, { op: 'stream', name: 'stdout', text: 'a' });
    expect(model.executionState).toBe('running');
    void streams.handler!.onItems([{ op: 'done' }]);
    expect(text(model)).toEqual(['card', 'a']);
    expect(model.executionCount).toBe(4);
    expect(model.executionState).toBe('idle');
    expect(streams.handler).toBeNull();
    expect(ends).toEqual([true]);
    expect(streams.released).toEqual([]);
    filler.dispose();
    expect(streams.released).toEqual(['a.ipynb#c#j']);
  });

  it('draws anew, not twice, after a lost connection', async () => {
    const { streams, model, grant } = filling();
    await grant();
    streams.begin(card, { op: 'stream', name: 'stdout', text: 'a' });
    streams.begin(card, { op: 'stream', name: 'stdout', text: 'ab' });
    expect(text(model)).toEqual(['card', 'ab']);
  });

  it('stops when somebody clears the cell', async () => {
    const { streams, model, ends, grant } = filling();
    await grant();
    streams.begin(card);
    model.outputs.clear();
    expect(streams.handler).toBeNull();
    expect(ends).toEqual([false]);
    expect(model.outputs.length).toBe(0);
  });

  it('pauses when a kernel of another page draws the cell', async () => {
    const { streams, model, ends, grant } = filling();
    await grant();
    streams.begin(card);
    streams.tell({ granted: false, holder: 'kernel' });
    expect(streams.handler).toBeNull();
    expect(model.executionState).toBe('idle');
    expect(ends).toEqual([]);
  });

  it('does not begin when there is nothing left to fill', async () => {
    const { streams, model, grant } = filling(false);
    await grant();
    expect(streams.handler).toBeNull();
    expect(text(model)).toEqual(['old']);
  });

  it('tells a stream that ended early apart from one that is whole', async () => {
    const { streams, ends, grant } = filling();
    await grant();
    streams.begin(card);
    streams.handler!.onEnded!();
    expect(ends).toEqual([false]);
  });

  it('waits until others are through, or out of the way', async () => {
    const turns = new Turns(1);
    const first = filling(true, turns);
    const second = filling(false, turns); // has nothing left to fill once it may
    const third = filling(true, turns);
    for (const { grant } of [first, second, third]) {
      await grant();
    }
    first.streams.begin(card);
    expect(third.streams.handler).toBeNull();
    first.streams.begin({ op: 'done' });
    await new Promise(done => setTimeout(done, 0));
    third.streams.begin(card);
    expect(text(third.model)).toEqual(['card']);
  });

  it('gives its turn up with its claim, and takes another with the next', async () => {
    const turns = new Turns(1);
    const first = filling(true, turns);
    const second = filling(true, turns);
    await first.grant();
    await second.grant();
    first.streams.tell({ granted: false, holder: null });
    await Promise.resolve();
    second.streams.begin(card);
    await first.grant();
    expect(first.streams.handler).toBeNull();
    second.filler.dispose();
    await Promise.resolve();
    first.streams.begin(card);
    expect(text(first.model)).toEqual(['card']);
  });
});
