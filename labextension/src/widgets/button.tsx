/** A small button that keeps its keys: in a notebook's output Lab's shortcuts would take Enter and Space from it. */
import * as React from 'react';

export type IButtonProps = React.ButtonHTMLAttributes<HTMLButtonElement>;

export const Button = React.forwardRef<HTMLButtonElement, IButtonProps>(
  function Button({ className, ...others }, ref) {
    return (
      <button
        type="button"
        ref={ref}
        className={`jp-gpucluster-button ${className ?? ''}`}
        data-lm-suppress-shortcuts="true"
        {...others}
      />
    );
  }
);
