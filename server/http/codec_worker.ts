import { ServerError } from "../../proto/status.ts";
import { buffersOf, type CodecMessage, type CodecReply, runCodecJob } from "./codec_job.ts";

/** The few members of a Worker's global scope that are used here. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<CodecMessage>) => void) | null;
  postMessage(message: CodecReply, transfer: Transferable[]): void;
}

const scope = globalThis as unknown as WorkerScope;

scope.onmessage = ({ data }) => {
  try {
    const output = runCodecJob(data.kind, data.input);
    scope.postMessage({ output }, [...buffersOf(output)]);
  } catch (reason) {
    const { code, message } = ServerError.from(reason);
    scope.postMessage({ code, message }, []);
  }
};
