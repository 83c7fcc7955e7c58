import type { FromWorker, ToWorker } from "./worker_protocol.ts";
import { SessionWorker } from "./worker.ts";

/** The few members of a Worker's global scope that are used here. */
interface WorkerScope {
  addEventListener(type: "message", listener: (event: { readonly data: ToWorker }) => void): void;
  postMessage(message: FromWorker, transfer: ArrayBuffer[]): void;
  readonly location: object;
}

const scope = globalThis as unknown as WorkerScope;
// The runtime's build for WebGPU makes addresses out of it, and there is none for a file.
Object.defineProperty(scope.location, "origin", { value: "file://" });

const worker = new SessionWorker();
scope.addEventListener("message", async ({ data }) => {
  const answer = await worker.answer(data);
  const transfer = answer.kind === "result" ? answer.outputs.map((output) => output.data) : [];
  scope.postMessage(answer, transfer);
});
