/** Short facts in a row, set apart by dots; what is empty is left out. */
import * as React from 'react';

/** Key and what is shown. */
export type IFact = [string, React.ReactNode];

export function FactList(props: {
  facts: readonly IFact[];
  className: string;
}): JSX.Element | null {
  const shown = props.facts.filter(([, fact]) => fact);
  return shown.length ? (
    <span className={`jp-gpucluster-facts ${props.className}`}>
      {shown.map(([key, fact], index) => (
        <React.Fragment key={key}>
          {index > 0 && ' '}
          <span>{fact}</span>
        </React.Fragment>
      ))}
    </span>
  ) : null;
}
