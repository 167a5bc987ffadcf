/**
 * Keys of what stands in a notebook's output: Lab's shortcuts would take Enter, Space and Escape from a button there.
 *
 * An element of the class has these keys for itself, and what stands in a grid those that lead about as well; all others,
 * such as saving, stay Lab's.
 */
import * as React from 'react';

export const OWN_KEYS_CLASS = 'jp-gpucluster-ownKeys';
/** Of a grid with boxes that the arrow keys lead to. */
export const GRID_KEYS_CLASS = 'jp-gpucluster-gridKeys';
/** What Lumino's commands look for, when they get the event after us. */
const SUPPRESS = 'data-lm-suppress-shortcuts';
const OWN: ReadonlySet<string> = new Set(['Enter', ' ', 'Escape']);
const ENDS: ReadonlySet<string> = new Set(['Home', 'End']);
const LEADING: ReadonlySet<string> = new Set([
  ...['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight'],
  ...['PageUp', 'PageDown'],
  ...ENDS
]);

let isListening = false;

/** To be called by every component with an element of a class; one listener serves the page. */
export function useOwnKeys(): void {
  React.useEffect(() => {
    if (!isListening) {
      isListening = true;
      window.addEventListener('keydown', onKeyDown, true);
    }
  }, []);
}

type Pressed = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey'>;

/** Whether a key is a grid's: the first and the last of all are reached with Ctrl. */
export function isGridKey(event: Pressed): boolean {
  const { key, altKey } = event;
  return (
    isOwnKey(event) ||
    (isPlain(event) && LEADING.has(key)) ||
    (!altKey && ENDS.has(key))
  );
}

function isOwnKey(event: Pressed): boolean {
  return isPlain(event) && OWN.has(event.key);
}

function isPlain({ ctrlKey, metaKey, altKey }: Pressed): boolean {
  return !ctrlKey && !metaKey && !altKey;
}

function onKeyDown(event: KeyboardEvent): void {
  const { target } = event;
  if (!(target instanceof Element)) {
    return;
  }
  if (target.classList.contains(OWN_KEYS_CLASS)) {
    target.toggleAttribute(SUPPRESS, isOwnKey(event));
  }
  target
    .closest(`.${GRID_KEYS_CLASS}`)
    ?.toggleAttribute(SUPPRESS, isGridKey(event));
}
