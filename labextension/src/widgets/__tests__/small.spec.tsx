import { nullTranslator } from '@jupyterlab/translation';
import { fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';

import { STATES } from '../../model/testing';
import { Button } from '../button';
import { ProgressBar } from '../progressBar';
import { SimulatedBadge } from '../simulatedBadge';
import { Sparkline } from '../sparkline';
import { StateIcon } from '../stateIcon';

const trans = nullTranslator.load('jupyter_gpucluster');

describe('StateIcon', () => {
  it('tells its state to a screen reader', () => {
    render(<StateIcon state="failed" trans={trans} />);
    expect(screen.getByRole('img', { name: 'failed' })).toBeTruthy();
  });

  it('is silent beside the word', () => {
    render(<StateIcon state="failed" trans={trans} isDecorative />);
    expect(screen.queryByRole('img')).toBeNull();
  });

  it('has another form for each state, so that colour is not needed', () => {
    const forms = [...STATES, 'hibernating'].map(state => {
      const { container } = render(
        <StateIcon state={state} trans={trans} isDecorative />
      );
      return container.querySelector('svg')!.innerHTML;
    });
    expect(new Set(forms).size).toBe(forms.length);
  });

  it('takes no class from a state that is no word', () => {
    const { container } = render(
      <StateIcon state="x jp-mod-evil" trans={trans} />
    );
    expect(container.querySelector('.jp-mod-evil')).toBeNull();
  });
});

describe('ProgressBar', () => {
  it('says what progresses and how far', () => {
    render(
      <ProgressBar
        percent={30.4}
        state="running"
        label="job 12 train"
        text="step 30/100"
      />
    );
    const bar = screen.getByRole('progressbar', { name: 'job 12 train' });
    expect(bar.getAttribute('aria-valuenow')).toBe('30');
    expect(bar.getAttribute('aria-valuetext')).toBe('step 30/100');
    expect((bar.firstChild as HTMLElement).style.transform).toBe(
      'translateX(-69.6%)'
    );
  });

  it('is not there when nobody knows how far there is to go', () => {
    render(<ProgressBar percent={null} state="running" label="job 12" />);
    expect(screen.queryByRole('progressbar')).toBeNull();
  });
});

describe('Sparkline', () => {
  it('tells the course in words and draws it from left to right, high values above', () => {
    const points: [number, number][] = [
      [10, 2.3],
      [20, 0.25],
      [30, 0.31]
    ];
    render(<Sparkline points={points} label="loss" trans={trans} />);
    const picture = screen.getByRole('img', {
      name: 'loss: first 2.3, last 0.31, lowest 0.25, highest 2.3'
    });
    const line = picture
      .querySelector('polyline')!
      .getAttribute('points')!
      .split(' ')
      .map(point => point.split(',').map(Number));
    expect(line).toHaveLength(3);
    expect(line[0]).toEqual([2, 2]);
    expect(line[1]).toEqual([50, 18]);
    expect(line[2][0]).toBe(98);
  });

  it.each([
    [
      'that never changes',
      [
        [0, 5],
        [1, 5]
      ]
    ],
    [
      'of one moment',
      [
        [1, 5],
        [1, 6]
      ]
    ]
  ])('draws a course %s', (_, points) => {
    render(
      <Sparkline
        points={points as [number, number][]}
        label="x"
        trans={trans}
      />
    );
    const line = screen.getByRole('img').querySelector('polyline')!;
    expect(line.getAttribute('points')).not.toMatch(/NaN|Infinity/);
  });

  it('draws nothing of a single point', () => {
    render(<Sparkline points={[[0, 1]]} label="loss" trans={trans} />);
    expect(screen.queryByRole('img')).toBeNull();
  });
});

it('calls simulated GPUs simulated', () => {
  render(<SimulatedBadge trans={trans} />);
  expect(screen.getByText('simulated').title).toMatch(/no such hardware/);
});

it('a button in an output keeps its own keys from the notebook, and no others', () => {
  render(<Button>{'Log'}</Button>);
  const button = screen.getByRole('button');
  const isKept = (key: string, modifiers = {}) => {
    fireEvent.keyDown(button, { key, ...modifiers });
    return button.hasAttribute('data-lm-suppress-shortcuts');
  };
  expect(['Enter', ' ', 'Escape'].map(key => isKept(key))).toEqual([
    true,
    true,
    true
  ]);
  expect(isKept('s', { ctrlKey: true })).toBe(false);
  expect(isKept('Enter', { ctrlKey: true })).toBe(false);
  expect(isKept('j')).toBe(false);
});
