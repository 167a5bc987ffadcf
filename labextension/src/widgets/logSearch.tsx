/** Finds text in the lines that are shown. */
import {
  caretDownEmptyThinIcon,
  caretUpEmptyThinIcon,
  caseSensitiveIcon,
  closeIcon,
  LabIcon,
  regexIcon
} from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { useSignal } from '../panels/hooks';
import { Button } from './button';
import type { LogPanel } from './logPanel';
import { IFound, ISearch, MATCHES_SHOWN } from './logTerminal';

export function LogSearch({ panel }: { panel: LogPanel }): JSX.Element | null {
  useSignal(panel.changed);
  const [search, setSearch] = React.useState<ISearch>({
    text: '',
    isCaseSensitive: false,
    isPattern: false
  });
  const { terminal, trans, isSearching } = panel;
  if (!isSearching || !terminal) {
    return null;
  }
  const isWrong = patternProblem(search) !== '';
  const find = (asked: ISearch, direction: Direction, isTyping = false) => {
    if (patternProblem(asked) === '' && asked.text) {
      terminal.find(asked, direction, isTyping);
    } else {
      terminal.clearSearch();
    }
  };
  const change = (part: Partial<ISearch>) => {
    const next = { ...search, ...part };
    setSearch(next);
    find(next, 'next', true);
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      panel.closeSearch();
    }
  };
  return (
    <div
      role="search"
      className="jp-gpucluster-logSearch"
      onKeyDown={onKeyDown}
    >
      <SearchField
        panel={panel}
        search={search}
        isWrong={isWrong}
        onText={text => change({ text })}
        onEnter={direction => find(search, direction)}
      />
      <Toggle
        icon={caseSensitiveIcon}
        label={trans.__('Match case')}
        isOn={search.isCaseSensitive}
        onToggle={isCaseSensitive => change({ isCaseSensitive })}
      />
      <Toggle
        icon={regexIcon}
        label={trans.__('Regular expression')}
        isOn={search.isPattern}
        onToggle={isPattern => change({ isPattern })}
      />
      <span role="status" className="jp-gpucluster-logFound">
        {isWrong
          ? trans.__('Not a regular expression: %1', patternProblem(search))
          : search.text && foundText(terminal.found, trans)}
      </span>
      <IconButton
        icon={caretUpEmptyThinIcon}
        label={trans.__('Previous match')}
        onClick={() => find(search, 'previous')}
      />
      <IconButton
        icon={caretDownEmptyThinIcon}
        label={trans.__('Next match')}
        onClick={() => find(search, 'next')}
      />
      <IconButton
        icon={closeIcon}
        label={trans.__('Close the search')}
        onClick={() => panel.closeSearch()}
      />
    </div>
  );
}

type Direction = 'next' | 'previous';

function SearchField(props: {
  panel: LogPanel;
  search: ISearch;
  isWrong: boolean;
  onText: (text: string) => void;
  onEnter: (direction: Direction) => void;
}): JSX.Element {
  const { panel, search, isWrong, onText, onEnter } = props;
  const field = React.useRef<HTMLInputElement>(null);
  React.useEffect(() => {
    const take = () => {
      field.current?.focus();
      field.current?.select();
    };
    take();
    panel.searched.connect(take);
    return () => {
      panel.searched.disconnect(take);
    };
  }, [panel]);
  return (
    <input
      ref={field}
      type="text"
      spellCheck={false}
      data-lm-suppress-shortcuts="true"
      placeholder={panel.trans.__('Find in these lines')}
      aria-label={panel.trans.__('Find in these lines')}
      aria-invalid={isWrong || undefined}
      value={search.text}
      onChange={event => onText(event.target.value)}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          event.preventDefault();
          onEnter(event.shiftKey ? 'previous' : 'next');
        }
      }}
    />
  );
}

function Toggle(props: {
  icon: LabIcon;
  label: string;
  isOn: boolean;
  onToggle: (isOn: boolean) => void;
}): JSX.Element {
  const { icon, label, isOn, onToggle } = props;
  return (
    <IconButton
      icon={icon}
      label={label}
      aria-pressed={isOn}
      onClick={() => onToggle(!isOn)}
    />
  );
}

function IconButton(
  props: { icon: LabIcon; label: string } & React.ComponentProps<typeof Button>
): JSX.Element {
  const { icon, label, ...others } = props;
  return (
    <Button
      {...others}
      className="jp-gpucluster-logIcon"
      aria-label={label}
      title={label}
    >
      <icon.react tag="span" display="flex" width="16px" height="16px" />
    </Button>
  );
}

/** What is wrong with a regular expression; "" when nothing is. */
export function patternProblem(search: ISearch): string {
  if (!search.isPattern) {
    return '';
  }
  try {
    new RegExp(search.text);
    return '';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

export function foundText(found: IFound, trans: TranslationBundle): string {
  if (found.count === 0) {
    return trans.__('not found');
  }
  if (found.count >= MATCHES_SHOWN) {
    return trans.__('%1 or more', MATCHES_SHOWN.toLocaleString());
  }
  return found.at < 0
    ? found.count.toLocaleString()
    : trans.__(
        '%1 of %2',
        (found.at + 1).toLocaleString(),
        found.count.toLocaleString()
      );
}
