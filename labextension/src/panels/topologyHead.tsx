/** Above the topology: how much is free and in which pieces, what the colours stand for, the filter. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { TranslationBundle } from '@jupyterlab/translation';
import { launchIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ITopology } from '../model/topology';
import { TopologyChoice, TopologyValues } from '../model/topologyChoice';
import { IFreePieces } from '../model/topologyFree';
import {
  gpusFreeText,
  ILevels,
  largestSentence,
  largestText
} from '../model/topologyWords';
import { CommandIDs } from '../tokens';
import { Button } from '../widgets/button';
import { SimulatedBadge } from '../widgets/simulatedBadge';
import { Room } from './topologyNode';

export interface IHeadProps {
  whole: ITopology;
  names: ILevels;
  choice: TopologyChoice;
  /** Null: few enough to be seen at once. */
  filter: string | null;
  onFilter(filter: string): void;
  room: Room;
  commands: JupyterFrontEnd['commands'];
  trans: TranslationBundle;
}

export function TopologyHead(props: IHeadProps): JSX.Element {
  const { whole, names, filter, trans } = props;
  return (
    <header>
      <Controls {...props} />
      {whole.gpus > 0 && (
        <div className="jp-gpucluster-topologySummary">
          <Summary {...props} />
        </div>
      )}
      {filter !== null && (
        <input
          type="search"
          className="jp-gpucluster-topologyFilter"
          value={filter}
          aria-label={trans.__('Filter nodes')}
          placeholder={trans.__(
            '%1, %2, type, job or #number',
            names.node,
            names.rack
          )}
          data-lm-suppress-shortcuts="true"
          onChange={event => props.onFilter(event.target.value)}
        />
      )}
    </header>
  );
}

function Summary({ whole, names, trans }: IHeadProps): JSX.Element {
  return (
    <>
      <div className="jp-gpucluster-topologyFreeInAll">
        <b>{gpusFreeText(whole.counts.free, whole.gpus, trans)}</b>
        {whole.simulatedGpus > 0 && (
          <SimulatedBadge
            trans={trans}
            part={
              whole.simulatedGpus < whole.gpus ? whole.simulatedGpus : undefined
            }
          />
        )}
      </div>
      {whole.freeByType.size > 1 ? (
        <LargestByType byType={whole.freeByType} names={names} trans={trans} />
      ) : (
        <div
          className="jp-gpucluster-topologyLargest"
          title={largestSentence(whole.free, names, trans)}
        >
          {trans.__('Largest free: %1', largestText(whole.free, names, trans))}
        </div>
      )}
    </>
  );
}

/** What a gang that wants to sit together could get now, of each GPU type. */
function LargestByType(props: {
  byType: ReadonlyMap<string, IFreePieces>;
  names: ILevels;
  trans: TranslationBundle;
}): JSX.Element {
  const { byType, names, trans } = props;
  return (
    <table className="jp-gpucluster-topologyLargest">
      <thead>
        <tr>
          <th scope="col">{trans.__('Largest free')}</th>
          <th scope="col" title={trans.__('NVLink island')}>
            {trans.__('NVLink')}
          </th>
          <th scope="col">{names.node}</th>
          <th scope="col">{trans.__('in all')}</th>
        </tr>
      </thead>
      <tbody>
        {[...byType].map(([type, free]) => (
          <tr key={type} title={largestSentence(free, names, trans)}>
            <th scope="row">{type}</th>
            <td>{free.island ?? '–'}</td>
            <td>{free.node}</td>
            <td>{trans.__('%1 of %2', free.free, free.gpus)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Controls(props: IHeadProps): JSX.Element {
  const { choice, room, commands, trans } = props;
  const isNarrow = room === 'line';
  return (
    <div className="jp-gpucluster-topologyControls">
      <Choice<TopologyValues['colourBy']>
        label={trans.__('Colours')}
        chosen={choice.values.colourBy}
        options={[
          ['job', trans.__('Jobs'), trans.__('Colours stand for jobs')],
          [
            'utilisation',
            trans.__('Utilisation'),
            trans.__('Colours stand for utilisation')
          ]
        ]}
        onChoose={next => choice.set('colourBy', next)}
      />
      {!isNarrow && (
        <Choice<TopologyValues['topologySize']>
          label={trans.__('Size')}
          chosen={room === 'roomy' ? 'large' : 'small'}
          options={[
            ['large', trans.__('Large'), trans.__('All about each GPU')],
            ['small', trans.__('Small'), trans.__('Many nodes at once')]
          ]}
          onChoose={next => choice.set('topologySize', next)}
        />
      )}
      {isNarrow && commands.hasCommand(CommandIDs.openTopology) && (
        <Button
          className="jp-gpucluster-topologyOpenLarge"
          title={trans.__('Show the topology large')}
          aria-label={trans.__('Show the topology large')}
          onClick={() => void commands.execute(CommandIDs.openTopology)}
        >
          <launchIcon.react tag="span" />
        </Button>
      )}
    </div>
  );
}

/** A few alternatives side by side. */
function Choice<T extends string>(props: {
  label: string;
  chosen: T;
  options: [T, string, string][];
  onChoose(chosen: T): void;
}): JSX.Element {
  return (
    <div
      role="group"
      aria-label={props.label}
      className="jp-gpucluster-topologyChoice"
    >
      {props.options.map(([value, label, meaning]) => (
        <Button
          key={value}
          aria-pressed={value === props.chosen}
          title={meaning}
          onClick={() => props.onChoose(value)}
        >
          {label}
        </Button>
      ))}
    </div>
  );
}
