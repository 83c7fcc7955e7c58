import { type CompressionJob, runCompressionJob } from "./compression_job.ts";

/** The few members of a Worker's global scope that are used here. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<CompressionJob>) => void) | null;
  postMessage(message: unknown, transfer: Transferable[]): void;
}

const scope = globalThis as unknown as WorkerScope;

scope.onmessage = ({ data }) => {
  const result = runCompressionJob(data);
  scope.postMessage(result, "bytes" in result ? [result.bytes.buffer] : []);
};
