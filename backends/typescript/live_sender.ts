import type { ExecuteRequest, ExecuteResponse } from "../backend.ts";
import { type ToWorker, WINDOW } from "./worker_protocol.ts";

/** A request that a Worker has: hands its responses on in order, and tells the Worker how many were taken. */
export class LiveSender {
  readonly request: ExecuteRequest;
  readonly #number: number;
  readonly #post: (message: ToWorker) => void;
  readonly #onAbort: (() => void) | undefined;
  #taken = 0;
  #isClosed = false;
  #isOver = false;
  #sentCount = 0;
  /** Resolves when what was sent last is taken; later responses wait for it. */
  #held: Promise<void> | undefined;

  constructor(number: number, request: ExecuteRequest, post: (message: ToWorker) => void) {
    this.#number = number;
    this.request = request;
    this.#post = post;
    if (request.signal === undefined) return;
    this.#onAbort = () => post({ kind: "cancel", request: number });
    request.signal.addEventListener("abort", this.#onAbort);
  }

  /** The Worker has the request now: it is told of what happened before. */
  begin(): void {
    if (this.request.signal?.aborted) this.#onAbort?.();
  }

  /** Responses sent so far. */
  get sentCount(): number {
    return this.#sentCount;
  }

  /** Sends a response, after those before it. */
  send(response: ExecuteResponse | undefined, isFinal: boolean): void {
    this.#sentCount++;
    const handed = this.#held === undefined
      ? this.#hand(response, isFinal)
      : this.#held.then(() => this.#hand(response, isFinal));
    if (handed === undefined) return;
    const held = handed.then(() => {
      if (this.#held === held) this.#held = undefined;
    });
    this.#held = held;
  }

  #hand(response: ExecuteResponse | undefined, isFinal: boolean): Promise<void> | undefined {
    if (this.#isOver) {
      if (response !== undefined && "outputs" in response) response.release?.();
      return undefined;
    }
    this.#isOver = isFinal;
    const taken = this.request.send(response, isFinal);
    if (taken !== undefined) return taken.then(() => this.#countTaken());
    this.#countTaken();
    return undefined;
  }

  #countTaken(): void {
    if (++this.#taken < WINDOW.step || this.#isClosed) return;
    this.#post({ kind: "taken", request: this.#number, count: this.#taken });
    this.#taken = 0;
  }

  /** The Worker sends nothing more for it. */
  close(): void {
    this.#isClosed = true;
    if (this.#onAbort !== undefined) {
      this.request.signal?.removeEventListener("abort", this.#onAbort);
    }
  }
}
