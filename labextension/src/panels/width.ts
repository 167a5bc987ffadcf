/** How wide an element is, as it is resized. */
import * as React from 'react';

/** The width of an element in pixels; 0 before it is known. */
export function useWidth(element: React.RefObject<HTMLElement>): number {
  const [width, setWidth] = React.useState(0);
  React.useLayoutEffect(() => {
    const observed = element.current;
    if (!observed) {
      return;
    }
    setWidth(observed.clientWidth);
    if (typeof ResizeObserver === 'undefined') {
      return;
    }
    const observer = new ResizeObserver(() => setWidth(observed.clientWidth));
    observer.observe(observed);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
