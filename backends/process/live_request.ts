import type { ExecuteRequest, ExecuteResponse } from "../backend.ts";

/** Responses of one request that may be on their way (wire.md, CREDIT), and those the process may add in between. */
const WINDOW = 64;
const WAITING_MAX = 2 * WINDOW;
/** So many responses are credited at once. */
const CREDIT_STEP = 16;

/** Who a request tells what the process has to know. */
export interface LiveRequestOwner {
  credit(number: number, count: number): void;
  cancelled(number: number): void;
  /** The request is over. */
  closed(number: number): void;
}

interface Message {
  readonly response: ExecuteResponse | undefined;
  readonly isFinal: boolean;
}

/** A request that a process has and that has not had its final response: hands on responses as they are taken. */
export class LiveRequest {
  readonly request: ExecuteRequest;
  readonly number: number;
  readonly #owner: LiveRequestOwner;
  readonly #onAbort: (() => void) | undefined;
  #waiting: Message[] | undefined;
  #held: Promise<void> | undefined;
  #creditCount = 0;
  #isOver = false;
  #isSent = false;

  constructor(request: ExecuteRequest, number: number, owner: LiveRequestOwner) {
    this.request = request;
    this.number = number;
    this.#owner = owner;
    if (request.signal === undefined) return;
    this.#onAbort = () => owner.cancelled(number);
    request.signal.addEventListener("abort", this.#onAbort);
  }

  /** Nothing is taken any more: the final response came, or the request ended in another way. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Responses were sent. */
  get isSent(): boolean {
    return this.#isSent;
  }

  /** Settles when what came so far was taken; undefined = it was. */
  get taken(): Promise<void> | undefined {
    return this.#held;
  }

  /** Hands on a response. @throws RangeError when the process sends more than it may. */
  receive(response: ExecuteResponse | undefined, isFinal: boolean): void {
    if (this.#isOver) return releaseResponse(response);
    this.#isSent = true;
    if (isFinal) this.close();
    if (this.#held === undefined) return this.#deliver({ response, isFinal });
    const waiting = this.#waiting ??= [];
    waiting.push({ response, isFinal });
    // The last one is always taken: it also tells that a process was ended for what it sent before.
    if (!isFinal && waiting.length > WAITING_MAX) {
      throw new RangeError(`More than ${WAITING_MAX} responses of a request are on their way`);
    }
  }

  /** Takes nothing any more; what came before is still handed on. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#onAbort !== undefined) {
      this.request.signal?.removeEventListener("abort", this.#onAbort);
    }
    this.#owner.closed(this.number);
  }

  #deliver({ response, isFinal }: Message): void {
    let held: Promise<void> | undefined;
    try {
      held = this.request.send(response, isFinal);
    } catch {
      // The request was ended on the other side; that is no fault of the process.
      releaseResponse(response);
      this.close();
      return;
    }
    if (isFinal) return;
    if (held === undefined) this.#credit();
    else this.#held = held.then(() => this.#deliverWaiting());
  }

  #deliverWaiting(): Promise<void> | undefined {
    this.#held = undefined;
    this.#credit();
    while (this.#held === undefined) {
      const message = this.#waiting?.shift();
      if (message === undefined) return undefined;
      this.#deliver(message);
    }
    return this.#held;
  }

  #credit(): void {
    if (this.#isOver || ++this.#creditCount < CREDIT_STEP) return;
    const count = this.#creditCount;
    this.#creditCount = 0;
    this.#owner.credit(this.number, count);
  }
}

/** Gives back what a response holds when nobody takes it. */
export function releaseResponse(response: ExecuteResponse | undefined): void {
  if (response !== undefined && "outputs" in response) response.release?.();
}
