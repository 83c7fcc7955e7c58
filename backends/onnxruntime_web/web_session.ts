import { ServerError } from "../../proto/status.ts";
import type { SessionSignature } from "../../ffi/onnxruntime/signature.ts";
import type { FromWorker, SessionRequest, ToWorker, WireTensor } from "./worker_protocol.ts";
import { sessionError } from "./session_error.ts";
import { readSignature } from "./web_signature.ts";

/** Compiling the runtime and loading the largest model it can hold stay far below this. */
const LOAD_TIMEOUT_MS = 600_000;

export interface OpenOptions {
  /** Starts the Worker; replaced by tests. */
  readonly startWorker?: () => Worker;
}

/** A model in a Worker of its own. One run at a time. */
export class WebSession implements Disposable {
  readonly #worker: Worker;
  #signature: SessionSignature | undefined;
  #version = "";
  #waiting: PromiseWithResolvers<FromWorker> | undefined;
  #endReason: string | undefined;
  /** Called once when the Worker ends by itself, with the reason. */
  onEnd: ((reason: string) => void) | undefined;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#settle(data);
    worker.onerror = (event) => {
      event.preventDefault();
      this.end(event.message || "it failed without a word");
    };
    worker.onmessageerror = () => this.end("it sent a message that cannot be read");
  }

  /**
   * Starts a Worker and loads the model in it.
   * @throws ServerError with the runtime's words when it cannot be loaded, UNAVAILABLE when the Worker ends.
   */
  static async open(request: SessionRequest, options: OpenOptions = {}): Promise<WebSession> {
    const session = new WebSession((options.startWorker ?? startWorker)());
    const timer = setTimeout(() => {
      session.end(`the model was not loaded within ${LOAD_TIMEOUT_MS / 1000} s`);
    }, LOAD_TIMEOUT_MS);
    try {
      const answer = await session.#ask({ kind: "load", request }, []);
      if (answer.kind !== "loaded") throw new ServerError("INTERNAL", `got '${answer.kind}'`);
      session.#version = answer.version;
      session.#signature = await readSignature(request.path, answer);
      return session;
    } catch (reason) {
      session[Symbol.dispose]();
      throw reason;
    } finally {
      clearTimeout(timer);
    }
  }

  /** What the model takes and gives. */
  get signature(): SessionSignature {
    return this.#signature!;
  }

  /** Version of the runtime, such as `1.30.0`. */
  get version(): string {
    return this.#version;
  }

  /** Why the Worker is gone; undefined while it is there. */
  get endReason(): string | undefined {
    return this.#endReason;
  }

  /**
   * Runs the model. The buffers of the inputs are transferred: they are gone afterwards.
   * @throws ServerError with the runtime's words, UNAVAILABLE when the Worker ends.
   */
  async run(
    inputs: readonly WireTensor[],
    outputs: readonly string[],
  ): Promise<readonly WireTensor[]> {
    const question = { kind: "run", inputs, outputs } as const;
    const answer = await this.#ask(question, inputs.map(({ data }) => data));
    if (answer.kind === "result") return answer.outputs;
    throw new ServerError("INTERNAL", `got '${answer.kind}' from the Worker`);
  }

  #ask(question: ToWorker, transfer: ArrayBuffer[]): Promise<FromWorker> {
    if (this.#endReason !== undefined) return Promise.reject(endError(this.#endReason));
    if (this.#waiting !== undefined) {
      return Promise.reject(new TypeError("A session answers one question at a time"));
    }
    const waiting = this.#waiting = Promise.withResolvers<FromWorker>();
    this.#worker.postMessage(question, transfer);
    return waiting.promise;
  }

  #settle(answer: FromWorker): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (answer.kind !== "failed") {
      waiting?.resolve(answer);
      return;
    }
    const error = sessionError(answer.message, answer.isInput);
    waiting?.reject(error);
    if (answer.isFatal) this.end(error.message);
  }

  /** Ends the Worker, whatever it does, for a reason that the run in progress and `onEnd` are told. */
  end(reason: string): void {
    if (this.#endReason !== undefined) return;
    this.#close(reason);
    this.onEnd?.(reason);
  }

  [Symbol.dispose](): void {
    if (this.#endReason === undefined) this.#close("the model is unloaded");
  }

  #close(reason: string): void {
    this.#endReason = reason;
    this.#worker.terminate();
    this.#waiting?.reject(endError(reason));
    this.#waiting = undefined;
  }
}

function startWorker(): Worker {
  return new Worker(new URL("./worker_entry.ts", import.meta.url), {
    type: "module",
    name: "onnxruntime-web",
  });
}

function endError(reason: string): ServerError {
  return new ServerError("UNAVAILABLE", `the Worker of the model ended: ${reason}`);
}
