/** A small button, in an output too. */
import * as React from 'react';

import { OWN_KEYS_CLASS, useOwnKeys } from './ownKeys';

export type IButtonProps = React.ButtonHTMLAttributes<HTMLButtonElement>;

export const Button = React.forwardRef<HTMLButtonElement, IButtonProps>(
  function Button({ className, ...others }, ref) {
    useOwnKeys();
    return (
      <button
        type="button"
        ref={ref}
        className={`jp-gpucluster-button ${OWN_KEYS_CLASS} ${className ?? ''}`}
        {...others}
      />
    );
  }
);
