/** How panels follow the cluster: what they show is asked for while they are mounted, and drawn again when it changes. */
import { ISignal } from '@lumino/signaling';
import * as React from 'react';

import { IClusterChange, IGpuCluster, IInterest } from '../tokens';

/** Draws the component again at each signal that `concerns` it. */
export function useSignal<T, U>(
  signal: ISignal<T, U>,
  concerns: (args: U) => boolean = () => true
): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  const latest = React.useRef(concerns);
  latest.current = concerns;
  React.useEffect(() => {
    const onSignal = (_: T, args: U) => {
      if (latest.current(args)) {
        draw();
      }
    };
    signal.connect(onSignal);
    draw(); // something may have happened since the first drawing
    return () => {
      signal.disconnect(onSignal);
    };
  }, [signal]);
}

/** Draws the component again when something of the cluster changes that `concerns` it. */
export function useCluster(
  cluster: IGpuCluster,
  concerns: (change: IClusterChange) => boolean
): void {
  useSignal(cluster.changed, concerns);
}

/** Asks for `interest` as long as the component is mounted. */
export function useWatch(cluster: IGpuCluster, interest: IInterest): void {
  const key = JSON.stringify(interest);
  const latest = React.useRef(interest);
  latest.current = interest;
  const watch = React.useRef<ReturnType<IGpuCluster['watch']> | null>(null);
  React.useEffect(() => {
    watch.current = cluster.watch(latest.current);
    return () => {
      watch.current?.dispose();
      watch.current = null;
    };
  }, [cluster]);
  const isFirst = React.useRef(true);
  React.useEffect(() => {
    if (!isFirst.current) {
      watch.current?.update(latest.current);
    }
    isFirst.current = false;
  }, [key]);
}

/** The present moment by Date.now(), every `intervalMs`; null: no clock ticks. */
export function useNowMs(intervalMs: number | null): number {
  const [nowMs, setNowMs] = React.useState(() => Date.now());
  React.useEffect(() => {
    if (intervalMs === null) {
      return;
    }
    setNowMs(Date.now());
    const timer = setInterval(() => setNowMs(Date.now()), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return nowMs;
}

/** `value`, but at most one change in `intervalMs`; the last one always comes. */
export function useThrottled<T>(value: T, intervalMs: number): T {
  const [given, setGiven] = React.useState(value);
  const latest = React.useRef(value);
  latest.current = value;
  const timer = React.useRef<ReturnType<typeof setTimeout> | null>(null);
  React.useEffect(() => {
    if (!Object.is(value, given) && timer.current === null) {
      timer.current = setTimeout(() => {
        timer.current = null;
        setGiven(latest.current);
      }, intervalMs);
    }
  }, [value, given, intervalMs]);
  React.useEffect(
    () => () => {
      if (timer.current !== null) {
        clearTimeout(timer.current);
        timer.current = null;
      }
    },
    []
  );
  return given;
}
