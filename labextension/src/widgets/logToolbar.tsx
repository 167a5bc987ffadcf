/** The toolbar of a log: which rank and attempt, follow, find, copy, download, cancel. */
import {
  copyIcon,
  downloadIcon,
  HTMLSelect,
  moveDownIcon,
  ReactWidget,
  searchIcon,
  Toolbar,
  ToolbarButtonComponent
} from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { useSignal } from '../panels/hooks';
import { Button } from './button';
import { CancelButton } from './cancelButton';
import type { LogPanel } from './logPanel';

export interface ILogToolbarOptions {
  panel: LogPanel;
  /** Another rank of the same job is wanted. */
  onRank(rank: number): void;
}

export function fillToolbar(
  toolbar: Toolbar<Widget>,
  options: ILogToolbarOptions
): void {
  const { panel } = options;
  const items: [string, JSX.Element | null][] = [
    ['rank', <Ranks key="rank" {...options} />],
    ['attempt', <Attempts key="attempt" panel={panel} />],
    ['spacer', null],
    ['cancel', <Cancel key="cancel" panel={panel} />],
    ['follow', <Follow key="follow" panel={panel} />],
    ['search', <Search key="search" panel={panel} />],
    ['copy', <Copy key="copy" panel={panel} />],
    ['download', <Download key="download" panel={panel} />]
  ];
  for (const [name, element] of items) {
    if (element === null) {
      toolbar.addItem(name, Toolbar.createSpacerItem());
      continue;
    }
    const item = ReactWidget.create(element);
    item.addClass('jp-gpucluster-logItem');
    toolbar.addItem(name, item);
  }
}

interface IProps {
  panel: LogPanel;
}

function Ranks({ panel, onRank }: ILogToolbarOptions): JSX.Element | null {
  useSignal(panel.changed);
  const { job, trans, log } = panel;
  const tasks = Math.max(job?.tasks ?? 1, log.rank + 1);
  if (tasks <= 1) {
    return null;
  }
  return (
    <HTMLSelect
      aria-label={trans.__('Rank')}
      value={log.rank}
      onChange={event => onRank(Number(event.target.value))}
      options={Array.from({ length: tasks }, (_, rank) => ({
        value: rank,
        label: trans.__('rank %1', rank)
      }))}
    />
  );
}

function Attempts({ panel }: IProps): JSX.Element | null {
  useSignal(panel.changed);
  const { job, trans, log } = panel;
  const made = Math.max(job?.attempts_made ?? 1, log.attempt ?? 1);
  if (made <= 1) {
    return null;
  }
  const attempts = Array.from({ length: made }, (_, at) => ({
    value: at + 1,
    label: trans.__('attempt %1', at + 1)
  }));
  return (
    <HTMLSelect
      aria-label={trans.__('Attempt')}
      value={log.attempt ?? ''}
      onChange={event => {
        const attempt = Number(event.target.value) || null;
        panel.showFrom('end', { attempt });
      }}
      options={[{ value: '', label: trans.__('all attempts') }, ...attempts]}
    />
  );
}

function Cancel({ panel }: IProps): JSX.Element | null {
  useSignal(panel.changed);
  const { job, cluster, trans } = panel;
  return job ? (
    <CancelButton
      job={job}
      cluster={cluster}
      trans={trans}
      onGone={() => panel.terminal?.focus()}
    />
  ) : null;
}

function Follow({ panel }: IProps): JSX.Element {
  useSignal(panel.changed);
  const { terminal, trans } = panel;
  const isFollowing = terminal?.isFollowing ?? true;
  return (
    <Button
      className="jp-gpucluster-logIcon"
      aria-pressed={isFollowing}
      disabled={terminal === null}
      title={trans.__('Keep the end in view')}
      onClick={() => panel.follow(!isFollowing)}
    >
      <moveDownIcon.react tag="span" width="16px" height="16px" />{' '}
      {trans.__('Follow')}
    </Button>
  );
}

function Search({ panel }: IProps): JSX.Element {
  const { trans } = panel;
  return (
    <ToolbarButtonComponent
      icon={searchIcon}
      tooltip={trans.__('Find in these lines')}
      onClick={() => panel.openSearch()}
    />
  );
}

function Copy({ panel }: IProps): JSX.Element {
  const { trans } = panel;
  return (
    <ToolbarButtonComponent
      icon={copyIcon}
      tooltip={trans.__('Copy what is selected, or else all these lines')}
      onClick={() => panel.copy()}
    />
  );
}

function Download({ panel }: IProps): JSX.Element {
  const { trans } = panel;
  return (
    <ToolbarButtonComponent
      icon={downloadIcon}
      tooltip={trans.__('Download whole log')}
      onClick={() => void panel.downloadWhole()}
    />
  );
}
