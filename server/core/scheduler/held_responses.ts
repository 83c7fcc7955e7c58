import type { ExecuteResponse } from "../../../backends/backend.ts";
import type { CancelSignal } from "../../../proto/infer.ts";
import { ServerError } from "../../../proto/status.ts";
import { releaseOutputs, requestPrefix } from "./job.ts";

/** Most responses, and most bytes of outputs, that are held for one request. */
export const MAX_HELD_RESPONSES = 4096;
export const MAX_HELD_BYTES = 64 * 1024 * 1024;

interface HeldResponse {
  readonly response: ExecuteResponse | undefined;
  readonly isFinal: boolean;
}

/** Takes one held response; the promise asks for time before the next. */
type Delivery = (
  response: ExecuteResponse | undefined,
  isFinal: boolean,
) => Promise<void> | undefined;

/**
 * Responses that a model sent before it was their turn (scheduling.md §2.6). Bounded also when the model does not wait:
 * what is too much is replaced by one error.
 */
export class HeldResponses {
  readonly #id: string;
  readonly #signal: CancelSignal | undefined;
  #responses: HeldResponse[] = [];
  #byteSize = 0;
  #isOverfull = false;
  #isDropping = false;
  #turn: PromiseWithResolvers<void> | undefined = Promise.withResolvers();

  constructor(id: string, signal: CancelSignal | undefined) {
    this.#id = id;
    this.#signal = signal;
    if (signal?.aborted) this.#drop();
    else signal?.addEventListener("abort", this.#drop);
  }

  /** Keeps a response; the promise says when the model may go on. */
  add(response: ExecuteResponse | undefined, isFinal: boolean): Promise<void> | undefined {
    if (this.#isDropping || this.#isOverfull) {
      if (response !== undefined) releaseOutputs(response);
      // The end is always kept: without it the request would never be over.
      if (isFinal) this.#responses.push({ response: undefined, isFinal });
      return undefined;
    }
    this.#byteSize += outputBytes(response);
    if (
      this.#responses.length >= MAX_HELD_RESPONSES || this.#byteSize > MAX_HELD_BYTES
    ) {
      this.#isOverfull = true;
      if (response !== undefined) releaseOutputs(response);
      this.#responses.push({ response: { error: overfull(this.#id) }, isFinal });
    } else this.#responses.push({ response, isFinal });
    return this.#turn?.promise;
  }

  /** The model is not asked to wait any more. */
  stopWaiting(): void {
    this.#turn?.resolve();
    this.#turn = undefined;
  }

  /** Hands everything on in order; models that wait go on when the receiver has time. */
  release(deliver: Delivery): void {
    this.#signal?.removeEventListener("abort", this.#drop);
    let isHeld: Promise<void> | undefined;
    for (const { response, isFinal } of this.#responses) {
      isHeld = deliver(response, isFinal) ?? isHeld;
    }
    this.#responses = [];
    if (isHeld === undefined) this.stopWaiting();
    else isHeld.then(() => this.stopWaiting());
  }

  /** The client has gone. */
  readonly #drop = (): void => {
    this.#isDropping = true;
    for (const { response } of this.#responses) {
      if (response !== undefined) releaseOutputs(response);
    }
    this.#responses = this.#responses.filter(({ isFinal }) => isFinal)
      .map(({ isFinal }) => ({ response: undefined, isFinal }));
    this.stopWaiting();
  };
}

function outputBytes(response: ExecuteResponse | undefined): number {
  if (response === undefined || "error" in response) return 0;
  return response.outputs.reduce((sum, { data }) => sum + data.length, 0);
}

function overfull(id: string): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    `${
      requestPrefix(id)
    }response of a model with preserve_ordering could not be kept until its turn: more than ` +
      `${MAX_HELD_RESPONSES} responses or ${MAX_HELD_BYTES} bytes wait for an earlier request of the same batch`,
  );
}
