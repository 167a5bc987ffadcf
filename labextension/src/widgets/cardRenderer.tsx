/** Draws the MIME type of a job's card in an output. */
import { ReactWidget } from '@jupyterlab/ui-components';
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { parseCard } from '../model/cardState';
import { CARD_MIME } from '../notebook/card';
import { Card, ICardContext } from './card';

/** Before text/html (50), which stands beside it. */
export const CARD_RANK = 40;

export class CardRenderer extends ReactWidget implements IRenderMime.IRenderer {
  constructor(private readonly context: ICardContext) {
    super();
    this.addClass('jp-gpucluster-cardOutput');
  }

  /** Again and again for the same output: what React drew, with its focus, stays. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.data = model.data;
    MessageLoop.sendMessage(this, Widget.Msg.UpdateRequest);
    await this.renderPromise;
  }

  protected render(): JSX.Element {
    const card = parseCard(this.data[CARD_MIME]);
    return card ? (
      <Card key={card.job.id} card={card} context={this.context} />
    ) : (
      this.renderUnknown()
    );
  }

  /** A card of another version: its text, which every version has. */
  private renderUnknown(): JSX.Element {
    const { trans } = this.context;
    const text = this.data['text/plain'];
    return (
      <section className="jp-gpucluster-card" aria-label={trans.__('job')}>
        {typeof text === 'string' && (
          <div className="jp-gpucluster-cardText">{text}</div>
        )}
        <div className="jp-gpucluster-cardLine jp-gpucluster-muted">
          {trans.__(
            'This card was written by another version of jupyter-gpucluster; it is not live here.'
          )}
        </div>
      </section>
    );
  }

  private data: IRenderMime.IMimeModel['data'] = {};
}

/** It draws nothing but text and pictures of its own, so it may draw what is not trusted. */
export function cardFactory(
  context: ICardContext
): IRenderMime.IRendererFactory {
  return {
    safe: true,
    mimeTypes: [CARD_MIME],
    defaultRank: CARD_RANK,
    createRenderer: () => new CardRenderer(context)
  };
}
