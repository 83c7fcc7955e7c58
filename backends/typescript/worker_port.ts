import type { LogPlace } from "../backend.ts";
import { FrameSender } from "./frame_link.ts";
import { codedError } from "./worker_errors.ts";
import type { ErrorText, FromWorker, HostQuestion } from "./worker_protocol.ts";

/** Questions of a model that wait for an answer at one time. */
const MAX_OPEN_QUESTIONS = 1024;

/** What a Worker says to the server. */
export class WorkerPort {
  readonly post: (message: FromWorker) => void;
  readonly frames: FrameSender;
  readonly #open = new Map<number, PromiseWithResolvers<unknown>>();
  #nextId = 1;

  constructor(post: (message: unknown) => void) {
    this.post = post;
    this.frames = new FrameSender(post);
  }

  /** Asks the server. Rejects with an Error that has its code. */
  ask(question: HostQuestion): Promise<unknown> {
    if (this.#open.size >= MAX_OPEN_QUESTIONS) {
      const text = `more than ${MAX_OPEN_QUESTIONS} calls of the server are open`;
      return Promise.reject(codedError("UNAVAILABLE", text));
    }
    const id = this.#nextId++;
    const waiting = Promise.withResolvers<unknown>();
    this.#open.set(id, waiting);
    try {
      this.post({ kind: "ask", id, question });
    } catch (reason) {
      this.#open.delete(id);
      waiting.reject(reason);
    }
    return waiting.promise;
  }

  /** Takes the answer to a question. */
  settle({ id, value, error }: { id: number; value?: unknown; error?: ErrorText }): void {
    const waiting = this.#open.get(id);
    this.#open.delete(id);
    if (error === undefined) waiting?.resolve(value);
    else waiting?.reject(codedError(error.code, error.message));
  }

  /** Writes to the server's log. */
  log(
    level: "info" | "warning" | "error" | "verbose",
    message: string,
    place?: LogPlace | undefined,
  ): void {
    this.post({ kind: "log", level, message, place });
  }
}
