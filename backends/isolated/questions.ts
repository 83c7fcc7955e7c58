import type { ServerError } from "../../proto/status.ts";
import type { Frame, FramePayload } from "../process/frame.ts";
import type { FramePort } from "../process/stub_link.ts";
import { FRAME, type Json, readError } from "./isolated_wire.ts";

/** What a process is asked, and has not answered yet. */
export class Questions {
  readonly #port: FramePort;
  readonly #waiting = new Map<number, PromiseWithResolvers<Frame>>();
  #lastNumber = 0;
  #end: ServerError | undefined;

  constructor(port: FramePort) {
    this.#port = port;
  }

  /** Asks; the frame of the answer. @throws ServerError with the process's own words, or when it ends. */
  ask(method: string, about: Json = {}, payload?: FramePayload): Promise<Frame> {
    if (this.#end !== undefined) return Promise.reject(this.#end);
    const waiting = Promise.withResolvers<Frame>();
    const number = ++this.#lastNumber;
    this.#port.send(FRAME.ask, number, { m: method, ...about }, payload);
    this.#waiting.set(number, waiting);
    return waiting.promise;
  }

  /** ANSWER. @throws RangeError for what cannot be. */
  answered(frame: Frame): void {
    const waiting = this.#waiting.get(frame.id);
    if (waiting === undefined) throw new RangeError(`Question ${frame.id} was not asked`);
    const { e: error } = frame.json;
    const refusal = error === undefined ? undefined : readError(error);
    this.#waiting.delete(frame.id);
    if (refusal === undefined) waiting.resolve(frame);
    else waiting.reject(refusal);
  }

  /** The process is gone. */
  failAll(error: ServerError): void {
    this.#end = error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
