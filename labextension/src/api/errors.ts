/** What goes wrong between this page and the cluster. */
import { ErrorBody } from './schemas';

/** The API's error: what went wrong and what to do. `status`: of the HTTP answer; 0 = no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ErrorBody
  ) {
    super(body.reason);
  }

  /** Whether the scheduler, or the way to it, is away: it may be tried again. */
  get isAway(): boolean {
    return this.status === 0 || this.status >= 502;
  }

  /** Reason and hint in one text. */
  get sentence(): string {
    return [this.body.reason, this.body.hint].filter(Boolean).join(' ');
  }
}
