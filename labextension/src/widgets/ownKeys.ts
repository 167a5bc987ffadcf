/**
 * Keys of what stands in a notebook's output: Lab's shortcuts would take Enter, Space and Escape from a button there.
 *
 * An element of the class has these keys for itself; all others, such as saving, stay Lab's.
 */
import * as React from 'react';

export const OWN_KEYS_CLASS = 'jp-gpucluster-ownKeys';
/** What Lumino's commands look for, when they get the event after us. */
const SUPPRESS = 'data-lm-suppress-shortcuts';
const OWN: ReadonlySet<string> = new Set(['Enter', ' ', 'Escape']);

let isListening = false;

/** To be called by every component with an element of the class; one listener serves the page. */
export function useOwnKeys(): void {
  React.useEffect(() => {
    if (!isListening) {
      isListening = true;
      window.addEventListener('keydown', onKeyDown, true);
    }
  }, []);
}

function onKeyDown(event: KeyboardEvent): void {
  const { target } = event;
  if (target instanceof Element && target.classList.contains(OWN_KEYS_CLASS)) {
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    target.toggleAttribute(SUPPRESS, isPlain && OWN.has(event.key));
  }
}
