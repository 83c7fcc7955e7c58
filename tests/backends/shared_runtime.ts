import { SessionWorker } from "../../backends/onnxruntime_web/worker.ts";
import type { ToWorker } from "../../backends/onnxruntime_web/worker_protocol.ts";

/**
 * Stands for a Worker of onnxruntime-web: the same code in the test's own isolate. A Worker compiles the runtime
 * anew, which takes a second; here hundreds of models share one.
 */
export class InProcessWorker {
  onmessage: ((event: { readonly data: unknown }) => void) | undefined;
  onerror: unknown;
  onmessageerror: unknown;
  readonly #session = new SessionWorker();
  #running: Promise<unknown> = Promise.resolve();

  postMessage(question: ToWorker, transfer: ArrayBuffer[]): void {
    const copy = structuredClone(question, { transfer });
    this.#running = this.#session.answer(copy).then((data) => this.onmessage?.({ data }));
  }

  terminate(): void {
    void this.#running.then(() => this.#session.release());
  }
}
