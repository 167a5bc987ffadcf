/** A metric's course in the height of a line of text. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { figure } from '../model/words';

export interface ISparklineProps {
  /** [time in s, value], oldest first; all finite. */
  points: readonly [number, number][];
  /** The metric's name. */
  label: string;
  trans: TranslationBundle;
}

const WIDTH = 100;
const HEIGHT = 20;
/** So that the line is not cut off at the edges. */
const MARGIN = 2;

/** Nothing with fewer than two points: they make no line. */
export function Sparkline(props: ISparklineProps): JSX.Element | null {
  const { points, label, trans } = props;
  if (points.length < 2) {
    return null;
  }
  const text = courseText(points, label, trans);
  const line = toLine(points);
  const [x, y] = line[line.length - 1];
  return (
    <svg
      className="jp-gpucluster-sparkline"
      role="img"
      aria-label={text}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
    >
      <title>{text}</title>
      <polyline points={line.map(point => point.join(',')).join(' ')} />
      {/* A line of no length with round ends is a dot that keeps its form however the picture is stretched. */}
      <path className="jp-gpucluster-sparkEnd" d={`M${x} ${y}h0`} />
    </svg>
  );
}

/** "loss: first 2.3, last 0.31, lowest 0.3, highest 2.3" */
export function courseText(
  points: readonly [number, number][],
  label: string,
  trans: TranslationBundle
): string {
  const values = points.map(([, value]) => value);
  return trans.__(
    '%1: first %2, last %3, lowest %4, highest %5',
    label,
    figure(values[0]),
    figure(values[values.length - 1]),
    figure(Math.min(...values)),
    figure(Math.max(...values))
  );
}

/** The points in the picture; a course that never changes, or took no time, runs through its middle. */
function toLine(points: readonly [number, number][]): [number, number][] {
  const values = points.map(([, value]) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const place = (share: number, length: number) =>
    Number((MARGIN + share * (length - 2 * MARGIN)).toFixed(2));
  return points.map(([time, value], index) => [
    place(
      to > from ? (time - from) / (to - from) : index / (points.length - 1),
      WIDTH
    ),
    place(high > low ? (high - value) / (high - low) : 0.5, HEIGHT)
  ]);
}
