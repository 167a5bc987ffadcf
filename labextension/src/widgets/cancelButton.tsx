/** Cancels a job, after a question in its own place: no dialog gets in the way of what one is doing. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { JobView } from '../api/schemas';
import { isEnded } from '../model/words';
import { IGpuCluster } from '../tokens';
import { Button } from './button';

export interface ICancelButtonProps {
  job: Pick<JobView, 'id' | 'number' | 'name' | 'state' | 'can_control'>;
  cluster: Pick<IGpuCluster, 'cancel'>;
  trans: TranslationBundle;
  /** The job has ended and the button, which had the focus, is gone: put the focus somewhere near. */
  onGone?: () => void;
}

type Stage = 'idle' | 'asking' | 'sent' | { error: string };

/** Nothing for a job that has ended or that is not one's own to cancel. */
export function CancelButton(props: ICancelButtonProps): JSX.Element | null {
  const { job, cluster, trans, onGone } = props;
  const [stage, setStage] = React.useState<Stage>('idle');
  const isMounted = useIsMounted();
  const isGone = isEnded(job.state) || !job.can_control;
  const hadFocus = React.useRef(false);
  React.useEffect(() => {
    if (isGone && hadFocus.current) {
      hadFocus.current = false;
      onGone?.();
    }
  }, [isGone, onGone]);

  if (isGone) {
    return null;
  }
  const cancel = async () => {
    setStage('sent');
    try {
      await cluster.cancel(job.id);
    } catch (error) {
      if (isMounted.current) {
        setStage({ error: sentenceOf(error) });
      }
    }
  };
  return (
    <span
      className="jp-gpucluster-cancel"
      onFocus={() => (hadFocus.current = true)}
      onBlur={() => (hadFocus.current = false)}
    >
      {stage === 'asking' ? (
        <Question
          text={trans.__('Cancel job %1?', job.number)}
          trans={trans}
          onYes={cancel}
          onNo={() => setStage('idle')}
        />
      ) : (
        <Ask
          job={job}
          trans={trans}
          isSent={stage === 'sent'}
          takesFocus={hadFocus}
          onAsk={() => setStage('asking')}
        />
      )}
      {typeof stage === 'object' && (
        <span role="alert" className="jp-gpucluster-sentence">
          {stage.error}
        </span>
      )}
    </span>
  );
}

interface IAskProps extends Pick<ICancelButtonProps, 'job' | 'trans'> {
  isSent: boolean;
  /** Whether the focus was on what stood here before. */
  takesFocus: { readonly current: boolean };
  onAsk: () => void;
}

function Ask(props: IAskProps): JSX.Element {
  const { job, trans, isSent, takesFocus, onAsk } = props;
  const button = React.useRef<HTMLButtonElement>(null);
  React.useEffect(() => {
    if (takesFocus.current) {
      button.current?.focus();
    }
  }, [takesFocus]);
  return (
    // Not `disabled`, which would lose the focus and hide the word from a screen reader.
    <Button
      ref={button}
      aria-disabled={isSent || undefined}
      aria-label={isSent ? undefined : trans.__('Cancel job %1', job.number)}
      onClick={isSent ? undefined : onAsk}
    >
      {isSent ? trans.__('Cancelling…') : trans.__('Cancel')}
    </Button>
  );
}

function Question(props: {
  text: string;
  trans: TranslationBundle;
  onYes: () => void;
  onNo: () => void;
}): JSX.Element {
  const { text, trans, onYes, onNo } = props;
  const no = React.useRef<HTMLButtonElement>(null);
  // A key that is held down, or pressed once more, must not cancel a job.
  React.useEffect(() => no.current?.focus(), []);
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      onNo();
    }
  };
  return (
    <span
      role="group"
      aria-label={text}
      className="jp-gpucluster-question"
      onKeyDown={onKeyDown}
    >
      <span>{text}</span>
      <Button className="jp-gpucluster-mod-warn" onClick={answer(onYes)}>
        {trans.__('Yes')}
      </Button>
      <Button ref={no} onClick={answer(onNo)}>
        {trans.__('No')}
      </Button>
    </span>
  );
}

/** The second click of a double click on "Cancel" is no answer. */
function answer(act: () => void): React.MouseEventHandler {
  return event => {
    if (event.detail <= 1) {
      act();
    }
  };
}

/** An error as a sentence for people; an ApiError has one with its hint. */
export function sentenceOf(error: unknown): string {
  if (error instanceof Error) {
    return (error as { sentence?: string }).sentence ?? error.message;
  }
  return String(error);
}

function useIsMounted(): { readonly current: boolean } {
  const mounted = React.useRef(true);
  React.useEffect(() => {
    mounted.current = true;
    return () => {
      mounted.current = false;
    };
  }, []);
  return mounted;
}
