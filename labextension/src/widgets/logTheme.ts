/** Colours and font of the log: those of the page's theme, and for colours of the log itself those of a cell's output. */
import type { ISearchDecorationOptions } from '@xterm/addon-search';
import type { ITerminalOptions, ITheme } from '@xterm/xterm';

import { NOTE_COLOUR, STDERR_COLOUR } from '../model/logText';

const NAMES = [
  'black',
  'red',
  'green',
  'yellow',
  'blue',
  'magenta',
  'cyan',
  'white'
] as const;

/** Places of the palette before those that `extendedAnsi` holds. */
const BASIC_COLOURS = 16;

/** Reads what the style sheets make of a variable or a class, as "rgb(…)". */
class Probe {
  constructor(host: HTMLElement) {
    this.node = document.createElement('div');
    this.node.className = 'jp-RenderedText';
    this.node.style.display = 'none';
    this.span = document.createElement('span');
    this.node.appendChild(document.createElement('pre')).append(this.span);
    host.appendChild(this.node);
  }

  variable(name: string): string | undefined {
    this.span.className = '';
    this.span.style.color = `var(${name})`;
    const found = getComputedStyle(this.span).color;
    this.span.style.color = '';
    return found || undefined;
  }

  /** The colour that a cell's output has for a name of ANSI's, such as "ansi-red". */
  output(name: string): string | undefined {
    this.span.className = `${name}-fg`;
    return getComputedStyle(this.span).color || undefined;
  }

  dispose(): void {
    this.node.remove();
  }

  private readonly node: HTMLElement;
  private readonly span: HTMLElement;
}

/** `isFinding`: what is selected is the match that a search has gone to. */
export function themeOf(host: HTMLElement, isFinding: boolean): ITheme {
  const probe = new Probe(host);
  const background = probe.variable('--jp-layout-color0');
  const foreground = probe.variable('--jp-content-font-color0');
  const theme: ITheme = {
    background,
    foreground,
    cursor: background, // there is none
    cursorAccent: foreground,
    ...(isFinding ? matchColours(probe) : selectionColours(probe)),
    scrollbarSliderBackground: probe.variable('--jp-border-color1'),
    scrollbarSliderHoverBackground: probe.variable('--jp-border-color0'),
    scrollbarSliderActiveBackground: probe.variable('--jp-border-color0'),
    extendedAnsi: extended(probe)
  };
  for (const name of NAMES) {
    const bright =
      `bright${name[0].toUpperCase()}${name.slice(1)}` as keyof ITheme;
    Object.assign(theme, {
      [name]: probe.output(`ansi-${name}`),
      [bright]: probe.output(`ansi-${name}-intense`)
    });
  }
  probe.dispose();
  return theme;
}

function selectionColours(probe: Probe): ITheme {
  return {
    selectionBackground: probe.variable(
      '--jp-editor-selected-focused-background'
    ),
    selectionInactiveBackground: probe.variable(
      '--jp-editor-selected-background'
    )
  };
}

function matchColours(probe: Probe): ITheme {
  const background = probe.variable(
    '--jp-search-selected-match-background-color'
  );
  return {
    selectionBackground: background,
    selectionInactiveBackground: background,
    selectionForeground: probe.variable('--jp-search-selected-match-color')
  };
}

/** Colours of ours in their places; where nothing stands a terminal's own do. */
function extended(probe: Probe): string[] {
  const colours: string[] = [];
  const put = (place: number, variable: string) => {
    const colour = probe.variable(variable);
    if (colour) {
      colours[place - BASIC_COLOURS] = colour;
    }
  };
  put(STDERR_COLOUR, '--jp-gpucluster-log-stderr');
  put(NOTE_COLOUR, '--jp-gpucluster-log-note');
  return colours;
}

export function fontOf(
  host: HTMLElement
): Pick<ITerminalOptions, 'fontFamily' | 'fontSize' | 'lineHeight'> {
  const style = getComputedStyle(host);
  return {
    fontFamily: style.fontFamily || 'monospace',
    fontSize: Number.parseFloat(style.fontSize) || 13,
    lineHeight: 1.2
  };
}

/** Marks of matches; the library takes colours as #rrggbb only. */
export function searchColours(host: HTMLElement): ISearchDecorationOptions {
  const probe = new Probe(host);
  const match = hex(probe.variable('--jp-editor-selected-background'));
  const active = hex(
    probe.variable('--jp-search-selected-match-background-color')
  );
  probe.dispose();
  return {
    matchBackground: match,
    matchOverviewRuler: match ?? '#888888',
    activeMatchBackground: active,
    activeMatchColorOverviewRuler: active ?? '#888888'
  };
}

/** "rgb(255, 0, 16)" as "#ff0010"; undefined for what is no such colour. */
export function hex(colour: string | undefined): string | undefined {
  const found = /^rgba?\((\d+), (\d+), (\d+)/.exec(colour ?? '');
  return found
    ? `#${found
        .slice(1)
        .map(part => Number(part).toString(16).padStart(2, '0'))
        .join('')}`
    : undefined;
}
