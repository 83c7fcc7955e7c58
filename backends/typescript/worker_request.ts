import type { Datatype } from "../../proto/datatype.ts";
import type { ParameterValue } from "../../proto/infer.ts";
import { REQUEST_FLAG } from "./batch_frame.ts";
import type { FrameReader } from "./frame_reader.ts";
import type {
  CallResult,
  InferRequest,
  InferResponse,
  ModelCall,
  ModelTensor,
  RequestTrace,
  TensorOf,
} from "./model_api.ts";
import type { ModelCalls } from "./worker_calls.ts";
import type { RequestState } from "./worker_request_state.ts";
import { pickTensor, readTensors } from "./worker_tensors.ts";

/** A request as a model sees it, over the frame that it came in. */
export class LiveRequest implements InferRequest {
  readonly id: string;
  readonly correlationId: bigint | string;
  readonly batchSize: number;
  readonly sequenceStart: boolean;
  readonly sequenceEnd: boolean;
  readonly priority: number;
  readonly timeoutUs: number;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly requestedOutputs: readonly string[];
  readonly inputs: Readonly<Record<string, ModelTensor>>;
  readonly trace: RequestTrace | undefined;
  readonly #state: RequestState;
  readonly #calls: ModelCalls;

  constructor(reader: FrameReader, state: RequestState, calls: ModelCalls) {
    this.#state = state;
    this.#calls = calls;
    this.id = reader.text();
    this.correlationId = reader.correlationId();
    this.batchSize = reader.u32();
    const flags = reader.u8();
    this.sequenceStart = (flags & REQUEST_FLAG.start) !== 0;
    this.sequenceEnd = (flags & REQUEST_FLAG.end) !== 0;
    this.trace = (flags & REQUEST_FLAG.traced) === 0 ? undefined : readTrace(reader, state);
    this.priority = reader.f64();
    this.timeoutUs = reader.f64();
    this.parameters = reader.parameters();
    this.requestedOutputs = reader.texts();
    this.inputs = readTensors(reader);
  }

  get signal(): AbortSignal {
    return this.#state.signal;
  }

  /** A getter, so that it can be seen whether a model took it. */
  get send(): InferRequest["send"] {
    this.#state.isSendTaken = true;
    // Holds the request: it is not dropped while a model has the function.
    return (response: InferResponse | undefined, options?: { readonly isFinal?: boolean }) =>
      this.#state.send(response, options?.isFinal);
  }

  input<Type extends Datatype>(name: string, datatype: Type): TensorOf<Type> {
    return pickTensor(this.inputs, { name, datatype, what: "input" }, "INVALID_ARG");
  }

  reschedule(): void {
    this.#state.reschedule();
  }

  infer(modelName: string, call: ModelCall): Promise<CallResult> {
    return this.#calls.infer(modelName, call, this.#state.number);
  }

  inferStream(modelName: string, call: ModelCall): AsyncIterableIterator<CallResult> {
    return this.#calls.inferStream(modelName, call, this.#state.number);
  }
}

function readTrace(reader: FrameReader, state: RequestState): RequestTrace {
  const context = reader.text();
  return {
    context: context === "" ? undefined : context,
    mark: (activity) => state.mark(activity),
  };
}
