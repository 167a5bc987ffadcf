/** A part of the sidebar that opens and closes, and whose height can be set by hand. */
import { TranslationBundle } from '@jupyterlab/translation';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

const LEAST_HEIGHT = 72;
const STEP = 16;

export interface ISectionProps {
  id: string;
  title: string;
  /** In few words what is inside; shown when it is closed as well. */
  summary?: string;
  isOpen: boolean;
  onToggle: () => void;
  /** Set by hand; undefined: by its contents. */
  height?: number;
  /** Undefined: the section takes what is left and has no height of its own. */
  onHeight?: (height: number | undefined) => void;
  trans: TranslationBundle;
  children?: React.ReactNode;
}

export function Section(props: ISectionProps): JSX.Element {
  const { id, title, summary, isOpen, onToggle, onHeight, trans } = props;
  const element = React.useRef<HTMLElement>(null);
  const [dragged, setDragged] = React.useState<number | null>(null);
  const height = dragged ?? props.height;
  const Caret = isOpen ? caretDownIcon : caretRightIcon;
  const isSized = isOpen && onHeight !== undefined && height !== undefined;
  return (
    <section
      ref={element}
      className={`jp-gpucluster-section jp-gpucluster-mod-${id}`}
      data-open={isOpen}
      data-sized={isSized}
      style={isSized ? { flexBasis: height } : undefined}
      aria-labelledby={`jp-gpucluster-${id}-title`}
    >
      <h3>
        <button
          type="button"
          aria-expanded={isOpen}
          aria-controls={isOpen ? `jp-gpucluster-${id}-body` : undefined}
          onClick={onToggle}
        >
          <Caret.react tag="span" className="jp-gpucluster-caret" />
          <span id={`jp-gpucluster-${id}-title`}>{title}</span>
          {summary && <span className="jp-gpucluster-summary">{summary}</span>}
        </button>
      </h3>
      {isOpen && (
        <div
          id={`jp-gpucluster-${id}-body`}
          className="jp-gpucluster-sectionBody"
        >
          {props.children}
        </div>
      )}
      {isOpen && onHeight && (
        <Separator
          label={trans.__('Height of %1', title)}
          caption={trans.__('Drag to resize; double click to fit the contents')}
          height={() => element.current?.offsetHeight ?? 0}
          onDrag={setDragged}
          onHeight={height => {
            setDragged(null);
            onHeight(height);
          }}
        />
      )}
    </section>
  );
}

interface ISeparatorProps {
  label: string;
  caption: string;
  /** The height at present. */
  height: () => number;
  onDrag: (height: number) => void;
  onHeight: (height: number | undefined) => void;
}

function Separator(props: ISeparatorProps): JSX.Element {
  const { label, caption, height, onDrag, onHeight } = props;
  const from = React.useRef<{ y: number; height: number } | null>(null);
  const [now, setNow] = React.useState(0);
  React.useEffect(() => setNow(height()), [height]);
  const at = (event: React.PointerEvent) =>
    from.current === null
      ? null
      : Math.max(
          LEAST_HEIGHT,
          from.current.height + event.clientY - from.current.y
        );
  const onPointerDown = (event: React.PointerEvent) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    from.current = { y: event.clientY, height: height() };
  };
  const onPointerMove = (event: React.PointerEvent) => {
    const reached = at(event);
    if (reached !== null) {
      onDrag(reached);
    }
  };
  const onPointerUp = (event: React.PointerEvent) => {
    const reached = at(event);
    // A mere click sets nothing.
    if (reached !== null && event.clientY !== from.current?.y) {
      onHeight(reached);
    }
    from.current = null;
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    const by = { ArrowUp: -STEP, ArrowDown: STEP }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      onHeight(Math.max(LEAST_HEIGHT, height() + by));
    } else if (event.key === 'Enter') {
      onHeight(undefined);
    }
  };
  return (
    <div
      className="jp-gpucluster-separator"
      role="separator"
      aria-orientation="horizontal"
      aria-label={label}
      aria-valuemin={LEAST_HEIGHT}
      aria-valuenow={Math.round(now)}
      tabIndex={0}
      title={caption}
      onPointerDown={onPointerDown}
      onPointerMove={onPointerMove}
      onPointerUp={onPointerUp}
      onDoubleClick={() => onHeight(undefined)}
      onKeyDown={onKeyDown}
      onFocus={() => setNow(height())}
    />
  );
}
