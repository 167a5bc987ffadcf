/** What one can do with a job in the list, and how that goes: asked, sent, failed. Errors show in the row and go away. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import * as React from 'react';

import { CommandIDs, IGpuCluster } from '../tokens';
import { sentenceOf } from '../widgets/cancelButton';

/** An error has been read by then. */
export const ERROR_MS = 12_000;

export type Commands = JupyterFrontEnd['commands'];

/** By long id of the job. */
export interface IJobActionState {
  /** The one job that is asked about: is it to be cancelled? */
  asking: string | null;
  /** Cancellations under way. */
  sent: ReadonlySet<string>;
  errors: ReadonlyMap<string, string>;
  /** Jobs whose details are shown. */
  expanded: ReadonlySet<string>;
}

export interface IJobActions {
  ask(id: string): void;
  dontAsk(): void;
  cancel(id: string): void;
  /** Say in the row why something cannot be done. */
  refuse(id: string, why: string): void;
  openLog(id: string): void;
  goToCell(id: string): void;
  toggleDetails(id: string): void;
  dismiss(id: string): void;
}

type Step =
  | { do: 'ask'; id: string | null }
  | { do: 'sent'; id: string }
  | { do: 'failed'; id: string; error: string }
  | { do: 'dismiss'; id: string }
  | { do: 'details'; id: string };

const NOTHING: IJobActionState = {
  asking: null,
  sent: new Set(),
  errors: new Map(),
  expanded: new Set()
};

function next(state: IJobActionState, step: Step): IJobActionState {
  switch (step.do) {
    case 'ask':
      return { ...state, asking: step.id };
    case 'sent':
      return {
        ...state,
        asking: null,
        sent: new Set(state.sent).add(step.id),
        errors: without(state.errors, step.id)
      };
    case 'failed':
      return {
        ...state,
        sent: new Set([...state.sent].filter(id => id !== step.id)),
        errors: new Map(state.errors).set(step.id, step.error)
      };
    case 'dismiss':
      return { ...state, errors: without(state.errors, step.id) };
    case 'details': {
      const expanded = new Set(state.expanded);
      if (!expanded.delete(step.id)) {
        expanded.add(step.id);
      }
      return { ...state, expanded };
    }
  }
}

function without<T>(map: ReadonlyMap<string, T>, key: string): Map<string, T> {
  return new Map([...map].filter(([other]) => other !== key));
}

/** The actions stay the same object, so that rows need no new drawing for them. */
export function useJobActions(
  cluster: IGpuCluster,
  commands: Commands
): [IJobActionState, IJobActions] {
  const [state, dispatch] = React.useReducer(next, NOTHING);
  const timers = React.useRef(new Set<ReturnType<typeof setTimeout>>());
  React.useEffect(() => {
    const running = timers.current;
    return () => running.forEach(clearTimeout);
  }, []);
  const actions = React.useMemo<IJobActions>(() => {
    const fail = (id: string, error: string) => {
      dispatch({ do: 'failed', id, error });
      const timer = setTimeout(() => {
        timers.current.delete(timer);
        dispatch({ do: 'dismiss', id });
      }, ERROR_MS);
      timers.current.add(timer);
    };
    const attempt = (id: string, action: () => Promise<unknown>) => {
      action().catch(error => fail(id, sentenceOf(error)));
    };
    return {
      ask: id => dispatch({ do: 'ask', id }),
      dontAsk: () => dispatch({ do: 'ask', id: null }),
      cancel: id => {
        dispatch({ do: 'sent', id });
        attempt(id, () => cluster.cancel(id));
      },
      refuse: fail,
      openLog: id =>
        attempt(id, () => commands.execute(CommandIDs.openLog, { job: id })),
      goToCell: id =>
        attempt(id, () => commands.execute(CommandIDs.goToCell, { job: id })),
      toggleDetails: id => dispatch({ do: 'details', id }),
      dismiss: id => dispatch({ do: 'dismiss', id })
    };
  }, [cluster, commands]);
  return [state, actions];
}
