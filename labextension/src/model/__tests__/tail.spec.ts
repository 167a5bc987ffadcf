import { StreamItem } from '../../api/schemas';
import { Tail } from '../tail';

function bytes(...values: number[]): string {
  return btoa(String.fromCharCode(...values));
}

function printed(text: string, kind = 'stdout'): StreamItem {
  return {
    type: 'record',
    kind,
    payload: bytes(...new TextEncoder().encode(text))
  };
}

function shown(...items: StreamItem[]): readonly string[] {
  const tail = new Tail(3);
  tail.add(items);
  return tail.lines;
}

describe('the tail of a log', () => {
  it('has the last lines, the newest as far as it goes', () => {
    expect(shown(printed('a\nb\nc\nd'), printed('e'))).toEqual([
      'b',
      'c',
      'de'
    ]);
    expect(shown(printed('a\nb\n'))).toEqual(['a', 'b']);
  });

  it('shows a progress bar as a terminal does: the newest in the place of the older', () => {
    expect(
      shown(
        printed('start\n'),
        printed('\r10%', 'stderr'),
        printed('\r20%\r', 'stderr')
      )
    ).toEqual(['start', '20%']);
    expect(shown(printed('\r10%\r'), printed('\n'), printed('done\n'))).toEqual(
      ['10%', 'done']
    );
    expect(shown(printed('windows\r\nlines\r\n'))).toEqual([
      'windows',
      'lines'
    ]);
  });

  it('leaves colours and other commands to a terminal out', () => {
    expect(
      shown(printed('\x1b[1;31mred\x1b[0m \x1b]0;title\x07and\x1b[K plain'))
    ).toEqual(['red and plain']);
  });

  it('puts characters together that are in two records', () => {
    const tail = new Tail(3);
    tail.add([{ type: 'record', kind: 'stdout', payload: bytes(0xe2, 0x82) }]);
    tail.add([{ type: 'record', kind: 'stdout', payload: bytes(0xac) }]);
    expect(tail.lines).toEqual(['€']);
  });

  it('begins anew with an attempt, and skips what is not printed', () => {
    expect(
      shown(
        printed('before\n'),
        { type: 'attempt', attempt: 2 },
        { type: 'record', kind: 'display', payload: bytes(123) },
        printed('after\n')
      )
    ).toEqual(['after']);
  });

  it('keeps little of a flood', () => {
    const tail = new Tail(3);
    const chunk = printed('line\n'.repeat(10_000));
    tail.add(Array.from({ length: 50 }, () => chunk));
    expect(tail.lines).toEqual(['line', 'line', 'line']);
    const endless = printed('y'.repeat(50_000));
    tail.add(Array.from({ length: 50 }, () => endless));
    expect(tail.lines[2]).toMatch(/^y+$/);
    expect(tail.lines[2].length).toBeLessThan(1000);
  });
});
