/** A tooltip that the keyboard reaches too: it shows on hover and on focus, stays while the pointer is on it, and Escape hides it. */
import * as React from 'react';
import { createPortal } from 'react-dom';

const SHOW_MS = 400;
/** Time to get from the anchor to the tooltip. */
const HIDE_MS = 150;
const GAP = 4;
const WIDTH = 280;

export interface ITooltip {
  /** For the element that the tooltip is about. */
  anchor: {
    onMouseEnter: React.MouseEventHandler<HTMLElement>;
    onMouseLeave: React.MouseEventHandler<HTMLElement>;
    onFocus: React.FocusEventHandler<HTMLElement>;
    onBlur: React.FocusEventHandler<HTMLElement>;
    onKeyDown: React.KeyboardEventHandler<HTMLElement>;
  };
  /** To be rendered somewhere; null while hidden. */
  node: React.ReactNode;
}

/**
 * The tooltip is for the eye alone: whatever reads the page aloud gets `aria-describedby` of its own. Nothing is shown for
 * nothing to say (null).
 */
export function useTooltip(content: React.ReactNode): ITooltip {
  const [place, setPlace] = React.useState<DOMRect | null>(null);
  const timer = React.useRef<ReturnType<typeof setTimeout>>();
  React.useEffect(() => () => clearTimeout(timer.current), []);

  const later = (delayMs: number, act: () => void) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(act, delayMs);
  };
  const hide = () => {
    clearTimeout(timer.current);
    setPlace(null);
  };
  const anchor: ITooltip['anchor'] = {
    onMouseEnter: event => {
      const target = event.currentTarget;
      later(SHOW_MS, () => setPlace(target.getBoundingClientRect()));
    },
    onMouseLeave: () => later(HIDE_MS, hide),
    onFocus: event => {
      // A click gives the focus too, and wants no tooltip.
      if (isByKeyboard(event.target)) {
        setPlace(event.currentTarget.getBoundingClientRect());
      }
    },
    onBlur: hide,
    onKeyDown: event => {
      if (event.key === 'Escape') {
        hide();
      }
    }
  };
  const node =
    place !== null && content
      ? createPortal(
          <div
            className="jp-gpucluster-tooltip"
            role="tooltip"
            style={position(place)}
            onMouseEnter={() => clearTimeout(timer.current)}
            onMouseLeave={() => later(HIDE_MS, hide)}
          >
            {content}
          </div>,
          document.body
        )
      : null;
  return { anchor, node };
}

function isByKeyboard(element: Element): boolean {
  try {
    return element.matches(':focus-visible');
  } catch {
    return true; // a browser, or jsdom, that does not know it
  }
}

/** Beside the anchor, so that it hides none of its neighbours; without room there below it, or above. */
function position(anchor: DOMRect): React.CSSProperties {
  const fromBottom = window.innerHeight - anchor.bottom;
  const isLow = anchor.bottom > window.innerHeight * 0.7;
  if (window.innerWidth - anchor.right > WIDTH + 2 * GAP) {
    return {
      left: anchor.right + GAP,
      maxWidth: WIDTH,
      ...(isLow ? { bottom: Math.max(fromBottom, GAP) } : { top: anchor.top })
    };
  }
  return {
    left: Math.max(GAP, Math.min(anchor.left, window.innerWidth - WIDTH - GAP)),
    maxWidth: WIDTH,
    ...(isLow
      ? { bottom: window.innerHeight - anchor.top + GAP }
      : { top: anchor.bottom + GAP })
  };
}
