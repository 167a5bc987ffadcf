/** How panels follow the cluster: what can be seen is asked for, and drawn again when it changes. */
import { ISignal } from '@lumino/signaling';
import * as React from 'react';

import { IClusterChange, IGpuCluster, IInterest, IWatch } from '../tokens';

/**
 * Whether what is inside can be seen. A panel that is hidden stays as it is, so that it is found again as it was left; it is
 * neither drawn again nor asks for anything meanwhile.
 */
export const Shown = React.createContext(true);

/** Draws the component again at each signal that `concerns` it. */
export function useSignal<T, U>(
  signal: ISignal<T, U>,
  concerns: (args: U) => boolean = () => true
): void {
  const isShown = React.useContext(Shown);
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  const latest = React.useRef(concerns);
  latest.current = concerns;
  React.useEffect(() => {
    if (!isShown) {
      return;
    }
    const onSignal = (_: T, args: U) => {
      if (latest.current(args)) {
        draw();
      }
    };
    signal.connect(onSignal);
    draw(); // something may have happened since the last drawing
    return () => {
      signal.disconnect(onSignal);
    };
  }, [signal, isShown]);
}

/** Draws the component again when something of the cluster changes that `concerns` it. */
export function useCluster(
  cluster: IGpuCluster,
  concerns: (change: IClusterChange) => boolean
): void {
  useSignal(cluster.changed, concerns);
}

/** Asks for `interest` as long as the component is there and can be seen. */
export function useWatch(cluster: IGpuCluster, interest: IInterest): void {
  const isShown = React.useContext(Shown);
  const key = JSON.stringify(interest);
  const latest = React.useRef(interest);
  latest.current = interest;
  const watch = React.useRef<IWatch | null>(null);
  const asked = React.useRef('');
  React.useEffect(() => {
    if (!isShown) {
      return;
    }
    watch.current = cluster.watch(latest.current);
    asked.current = JSON.stringify(latest.current);
    return () => {
      watch.current?.dispose();
      watch.current = null;
    };
  }, [cluster, isShown]);
  React.useEffect(() => {
    if (watch.current && asked.current !== key) {
      asked.current = key;
      watch.current.update(latest.current);
    }
  }, [key]);
}

/** The present moment by Date.now(), every `intervalMs`; null, or nobody looks: no clock ticks. */
export function useNowMs(intervalMs: number | null): number {
  const isShown = React.useContext(Shown);
  const [nowMs, setNowMs] = React.useState(() => Date.now());
  React.useEffect(() => {
    if (intervalMs === null || !isShown) {
      return;
    }
    setNowMs(Date.now());
    const timer = setInterval(() => setNowMs(Date.now()), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs, isShown]);
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
