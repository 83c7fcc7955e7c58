import type { InferResponse } from "./model_api.ts";
import { codedError } from "./worker_errors.ts";
import type { WorkerPort } from "./worker_port.ts";
import { FRAME, OUTCOME, WINDOW } from "./worker_protocol.ts";
import { encodeResponse, type ResponseRules, writeResponse } from "./worker_response.ts";

/** What the requests of an instance have in common. */
export interface RequestParts {
  readonly port: WorkerPort;
  readonly rules: ResponseRules;
  /** Called once for each request when nothing more will be sent for it. */
  readonly onOver: (state: RequestState) => void;
}

/** The part of a request that the Worker keeps, also when the model has dropped its object. */
export class RequestState {
  readonly number: number;
  readonly #parts: RequestParts;
  requestedOutputs: readonly string[] = [];
  batchSize = 1;
  /** Whether the model took the function that sends: it may use it later. */
  isSendTaken = false;
  isRescheduled = false;
  #isOver = false;
  #sentCount = 0;
  #underWay = 0;
  #abort: AbortController | undefined;
  #isAborted = false;
  readonly #waiting: (() => void)[] = [];

  constructor(number: number, parts: RequestParts) {
    this.number = number;
    this.#parts = parts;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get sentCount(): number {
    return this.#sentCount;
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#isAborted) this.#abort.abort(codedError("CANCELLED", "The request was cancelled"));
    return this.#abort.signal;
  }

  /** Nobody waits for the request any more. */
  cancel(): void {
    this.#isAborted = true;
    this.#abort?.abort(codedError("CANCELLED", "The request was cancelled"));
    this.#wakeAll();
  }

  get isAborted(): boolean {
    return this.#isAborted;
  }

  mark(activity: string): void {
    if (!this.#isOver) {
      this.#parts.port.post({ kind: "mark", request: this.number, activity: String(activity) });
    }
  }

  reschedule(): void {
    if (this.#isOver) throw codedError("INVALID_ARG", "The request was answered already");
    this.isRescheduled = true;
  }

  /** Sends a response; resolves when more may be sent. */
  send(
    response: InferResponse | undefined,
    isFinal = !this.#parts.rules.isDecoupled,
  ): Promise<void> {
    try {
      this.#checkSend(response, isFinal);
    } catch (reason) {
      return Promise.reject(reason);
    }
    this.#sentCount++;
    this.#write(response, isFinal);
    if (isFinal) this.end();
    else this.#underWay++;
    if (this.#underWay < WINDOW.size || isFinal || this.#isAborted) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #checkSend(response: InferResponse | undefined, isFinal: boolean): void {
    if (this.#isOver) {
      throw codedError("INVALID_ARG", "Unable to send response. Response sender has been closed.");
    }
    if (response === undefined && !isFinal) {
      const text = "Inference Response object must be provided when the response is not final.";
      throw codedError("INVALID_ARG", `Unable to send response. ${text}`);
    }
    if (this.#parts.rules.isDecoupled) return;
    if (this.#sentCount > 0 && response !== undefined) {
      const text = "Non-decoupled model cannot send more than one response.";
      throw codedError("INVALID_ARG", `Unable to send response. ${text}`);
    }
    if (this.#sentCount === 0 && response === undefined) {
      const text = "Non-decoupled model cannot send complete final before sending a response.";
      throw codedError("INVALID_ARG", `Unable to send response. ${text}`);
    }
  }

  #write(response: InferResponse | undefined, isFinal: boolean): void {
    const { port, rules } = this.#parts;
    const encoded = response === undefined ? undefined : encodeResponse(response, this, rules);
    port.frames.send((frame) => {
      frame.u8(FRAME.response).u32(this.number).u8(Number(isFinal));
      if (encoded === undefined) frame.u8(OUTCOME.none);
      else writeResponse(frame, encoded);
    });
  }

  /** The other side took so many responses. */
  taken(count: number): void {
    this.#underWay -= count;
    if (this.#underWay < WINDOW.size) this.#wakeAll();
  }

  /** Nothing more is sent for the request. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#parts.onOver(this);
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
