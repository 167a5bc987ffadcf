/** Below the text: what has come since the end was left, what waits, and why there is nothing. */
import * as React from 'react';

import { useSignal } from '../panels/hooks';
import { Button } from './button';
import { isWriting, LogPanel } from './logPanel';

export function LogEnd({ panel }: { panel: LogPanel }): JSX.Element | null {
  useSignal(panel.changed);
  const { terminal, feed, trans } = panel;
  const nothing = nothingText(panel);
  if (nothing) {
    return (
      <p className="jp-gpucluster-logEnd" role="status">
        {nothing}
      </p>
    );
  }
  if (!terminal || terminal.isFollowing || feed.state === 'failed') {
    return null;
  }
  const { isHolding, isPaging } = terminal;
  const newLines = isPaging ? 0 : terminal.newLines;
  if (!newLines && !isHolding && !isPaging) {
    return null;
  }
  const goToEnd = () => {
    panel.follow(true);
    terminal.focus(); // the button goes
  };
  return (
    <p className="jp-gpucluster-logEnd">
      <Button onClick={goToEnd}>
        {newLines
          ? trans._n(
              '%2 new line, go to the end',
              '%2 new lines, go to the end',
              newLines,
              newLines.toLocaleString()
            )
          : trans.__('Go to the end')}
      </Button>{' '}
      {isHolding && (
        <span>{trans.__('More is loaded as you scroll down.')}</span>
      )}
    </p>
  );
}

/** Why there is no text; "" when there is. */
function nothingText(panel: LogPanel): string {
  const { feed, trans, terminal, problem, job } = panel;
  if (feed.state === 'failed' || problem || feed.error) {
    return ''; // the head says why
  }
  if (!terminal || feed.state === 'loading') {
    return job?.state === 'pending'
      ? trans.__('The job has not begun; its log begins with it.')
      : trans.__('Loading the log …');
  }
  if (!feed.text.isEmpty) {
    return '';
  }
  return isWriting(panel)
    ? trans.__('Nothing was written yet.')
    : trans.__('Nothing was written.');
}
