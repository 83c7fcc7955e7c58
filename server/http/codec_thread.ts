import { ServerError } from "../../proto/status.ts";
import { buffersOf, type CodecJobKind, type CodecJobs, type CodecReply } from "./codec_job.ts";

/** Jobs that may wait. */
const JOBS_MAX = 1024;

interface QueuedJob {
  readonly kind: CodecJobKind;
  /** Copies what the job needs; called when its turn has come, so that what waits takes no memory. */
  readonly takeInput: () => CodecJobs[CodecJobKind]["input"];
  readonly resolve: (output: CodecJobs[CodecJobKind]["output"]) => void;
  readonly reject: (reason: ServerError) => void;
}

/**
 * A Worker for bodies that take long to read, write or compress: they would hold up every other connection. It starts
 * with the first job and does one after the other. It stays until the end: a thread that was started again would
 * load the files as they are then, which need not be the ones that this side came from.
 */
export class CodecThread implements Disposable {
  readonly #jobs: QueuedJob[] = [];
  #worker: Worker | undefined;
  #isDisposed = false;

  /**
   * Does a job. What `takeInput` returns is handed over to the thread: its buffers must be the job's own.
   * @throws ServerError what the job throws; UNAVAILABLE when too many jobs wait or the thread has ended.
   */
  run<Kind extends CodecJobKind>(
    kind: Kind,
    takeInput: () => CodecJobs[Kind]["input"],
  ): Promise<CodecJobs[Kind]["output"]> {
    if (this.#isDisposed) return Promise.reject(exiting());
    if (this.#jobs.length >= JOBS_MAX) {
      return Promise.reject(
        new ServerError("UNAVAILABLE", "Too many large bodies are waiting, try again later"),
      );
    }
    return new Promise<CodecJobs[CodecJobKind]["output"]>((resolve, reject) => {
      this.#jobs.push({ kind, takeInput, resolve, reject });
      if (this.#jobs.length === 1) this.#send();
    }) as Promise<CodecJobs[Kind]["output"]>;
  }

  /** Ends the thread; jobs that wait fail. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#worker?.terminate();
    this.#worker = undefined;
    for (const { reject } of this.#jobs.splice(0)) reject(exiting());
  }

  #send(): void {
    const next = this.#jobs[0];
    if (next === undefined) return;
    this.#worker ??= this.#start();
    try {
      const input = next.takeInput();
      this.#worker.postMessage({ kind: next.kind, input }, [...buffersOf(input)]);
    } catch (reason) {
      this.#fail(ServerError.from(reason));
    }
  }

  #start(): Worker {
    const worker = new Worker(new URL("./codec_worker.ts", import.meta.url), {
      type: "module",
      name: "http codec",
    });
    worker.onmessage = ({ data }: MessageEvent<CodecReply>) => {
      if (!("output" in data)) return this.#fail(new ServerError(data.code, data.message));
      this.#jobs.shift()?.resolve(data.output);
      this.#send();
    };
    worker.onerror = (event) => {
      event.preventDefault();
      worker.terminate();
      this.#worker = undefined;
      this.#fail(new ServerError("INTERNAL", `Body could not be processed: ${event.message}`));
    };
    return worker;
  }

  #fail(reason: ServerError): void {
    this.#jobs.shift()?.reject(reason);
    this.#send();
  }
}

function exiting(): ServerError {
  return new ServerError("UNAVAILABLE", "Server exiting");
}
