import { ServerError, type StatusCode } from "../../proto/status.ts";
import { type ArrivedFrame, FrameReceiver, FrameSender } from "./frame_link.ts";
import type { WorkerPermissions } from "./model_settings.ts";
import type { Answer, ErrorText, FromWorker, Question, ToWorker } from "./worker_protocol.ts";

/** What a Worker says besides answers. */
export interface WorkerListener {
  onFrame(frame: ArrivedFrame): void;
  onMessage(message: Exclude<FromWorker, Answer | { readonly kind: "ring" | "exit" }>): void;
  /** The Worker is gone, and why. Called once. */
  onEnd(reason: string): void;
}

/** A Worker with its listeners; replaced by tests. */
export type StartWorker = (permissions: WorkerPermissions) => Worker;

/** Starts a Worker for a model. @throws ServerError UNAVAILABLE when it may not have these permissions. */
export function startModelWorker(permissions: WorkerPermissions): Worker {
  const options = { type: "module", name: "model", deno: { permissions } };
  try {
    return new Worker(
      new URL("./worker_entry.ts", import.meta.url),
      (permissions === "inherit" ? { type: "module" } : options) as WorkerOptions,
    );
  } catch (reason) {
    const { message } = ServerError.from(reason);
    throw new ServerError(
      "UNAVAILABLE",
      `the permissions that the model declares cannot be given, the server may not do more ` +
        `itself: ${message}`,
      { cause: reason },
    );
  }
}

/** One Worker seen from the server. */
export class WorkerLink {
  readonly frames: FrameSender;
  readonly #worker: Worker;
  readonly #listener: WorkerListener;
  readonly #received = new FrameReceiver();
  readonly #open = new Map<number, PromiseWithResolvers<unknown>>();
  #nextId = 1;
  #endReason: string | undefined;

  constructor(worker: Worker, listener: WorkerListener) {
    this.#worker = worker;
    this.#listener = listener;
    this.frames = new FrameSender((message) => {
      if (this.#endReason === undefined) worker.postMessage(message);
    });
    worker.onmessage = ({ data }) => {
      try {
        this.#receive(data);
      } catch (reason) {
        // A model shares all memory of its Worker, that of the frames too: it must not end the server with it.
        this.end(`it sent a message that cannot be: ${ServerError.from(reason).message}`);
      }
    };
    worker.onerror = (event) => {
      event.preventDefault();
      this.end(event.message);
    };
    worker.onmessageerror = () => this.end("it sent a message that cannot be read");
  }

  /** Why the Worker is gone; undefined while it is there. */
  get endReason(): string | undefined {
    return this.#endReason;
  }

  post(message: ToWorker): void {
    if (this.#endReason === undefined) this.#worker.postMessage(message);
  }

  /** Asks the Worker. @throws ServerError with what its model threw, or UNAVAILABLE when it is gone. */
  ask(question: Question): Promise<unknown> {
    if (this.#endReason !== undefined) return Promise.reject(endError(this.#endReason));
    const id = this.#nextId++;
    const waiting = Promise.withResolvers<unknown>();
    this.#open.set(id, waiting);
    this.post({ kind: "ask", id, question });
    return waiting.promise;
  }

  /** Ends the Worker, whatever it does. */
  end(reason: string): void {
    if (this.#endReason !== undefined) return;
    this.#endReason = reason;
    this.#worker.terminate();
    for (const waiting of this.#open.values()) waiting.reject(endError(reason));
    this.#open.clear();
    this.#listener.onEnd(reason);
  }

  #receive(message: unknown): void {
    if (this.#endReason !== undefined) return;
    const frame = this.#received.receive(message);
    if (frame !== undefined) {
      this.#listener.onFrame(frame);
      return;
    }
    const control = message as FromWorker;
    if (control.kind === "answer") this.#settle(control);
    else if (control.kind === "exit") this.end(control.reason);
    else if (control.kind !== "ring") this.#listener.onMessage(control);
  }

  #settle({ id, value, error }: Answer): void {
    const waiting = this.#open.get(id);
    this.#open.delete(id);
    if (error === undefined) waiting?.resolve(value);
    else waiting?.reject(toServerError(error));
  }
}

/** An error of a model as the server has it. */
export function toServerError({ code, message }: ErrorText): ServerError {
  return new ServerError(code, message);
}

/** An error on its way to a Worker. */
export function toErrorText(reason: unknown): ErrorText {
  const { code, message } = ServerError.from(reason);
  return { code, message, isGiven: true };
}

function endError(reason: string): ServerError {
  const code: StatusCode = "UNAVAILABLE";
  return new ServerError(code, `its Worker ended: ${reason}`);
}
