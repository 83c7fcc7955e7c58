import type { ParameterValue } from "../../proto/infer.ts";
import type { FrameReader } from "./frame_reader.ts";
import type { CallResult, ModelCall, ModelTensor } from "./model_api.ts";
import { codedError } from "./worker_errors.ts";
import type { WorkerPort } from "./worker_port.ts";
import { FRAME, OUTCOME, WINDOW } from "./worker_protocol.ts";
import { encodeTensor, pickTensor, readTensors, writeTensors } from "./worker_tensors.ts";

/** Calls of other models that one instance may have open. */
const MAX_OPEN_CALLS = 1024;

type Message = { result?: CallResult; error?: Error; isFinal: boolean };
type Receive = (message: Message) => void;

/** Calls of other models (BLS), from the side of the model that makes them. */
export class ModelCalls {
  readonly #port: WorkerPort;
  readonly #open = new Map<number, Receive>();
  #nextId = 1;
  /** Calls are made between `initialize` and `finalize` only. */
  areAllowed = false;

  constructor(port: WorkerPort) {
    this.#port = port;
  }

  /** The one response of a model. `request`: number of the request on whose behalf it is called, 0 = none. */
  infer(modelName: string, call: ModelCall, request = 0): Promise<CallResult> {
    return new Promise((resolve, reject) => {
      let last: Message | undefined;
      this.#start(modelName, call, { request, isDecoupled: false }, (message) => {
        if (message.result !== undefined || message.error !== undefined) last = message;
        if (!message.isFinal) return;
        if (last?.result !== undefined) resolve(last.result);
        else reject(last?.error ?? codedError("INTERNAL", `Model '${modelName}' gave no response`));
      });
    });
  }

  /** All responses of a model, as they come. */
  async *inferStream(
    modelName: string,
    call: ModelCall,
    request = 0,
  ): AsyncIterableIterator<CallResult> {
    const arrived: Message[] = [];
    let wake: (() => void) | undefined;
    const id = this.#start(modelName, call, { request, isDecoupled: true }, (message) => {
      arrived.push(message);
      wake?.();
    });
    let taken = 0;
    let isOver = false;
    try {
      while (!isOver) {
        const message = arrived.shift();
        if (message === undefined) {
          await new Promise<void>((resolve) => wake = resolve);
          continue;
        }
        isOver = message.isFinal;
        if (++taken % WINDOW.step === 0 && !isOver) {
          this.#port.post({ kind: "callTaken", call: id, count: WINDOW.step });
        }
        if (message.error !== undefined) throw message.error;
        if (message.result !== undefined) yield message.result;
      }
    } finally {
      if (!isOver) this.#giveUp(id);
    }
  }

  #giveUp(id: number): void {
    if (!this.#open.has(id)) return;
    this.#port.post({ kind: "cancelCall", call: id, isAbandoned: true });
    // Responses under way still arrive.
    this.#open.set(id, () => {});
  }

  #start(
    modelName: string,
    call: ModelCall,
    { request, isDecoupled }: { readonly request: number; readonly isDecoupled: boolean },
    receive: Receive,
  ): number {
    this.#check(modelName);
    checkCall(call);
    call.signal?.throwIfAborted();
    const tensors = Object.entries(call.inputs).map(([name, tensor]) => encodeTensor(name, tensor));
    const id = this.#nextId++;
    this.#port.frames.send((frame) => {
      frame.u8(FRAME.call).u32(id).u8(Number(isDecoupled)).u32(request);
      frame.text(modelName).text(call.modelVersion ?? "").text(call.id ?? "");
      frame.correlationId(call.correlationId ?? 0n);
      frame.u8((call.sequenceStart ? 1 : 0) | (call.sequenceEnd ? 2 : 0));
      frame.f64(call.priority ?? 0).f64(call.timeoutUs ?? 0);
      frame.parameters(call.parameters ?? {}).texts(call.outputs ?? []);
      writeTensors(frame, tensors);
    });
    const { signal } = call;
    const abort = () => this.#port.post({ kind: "cancelCall", call: id, isAbandoned: false });
    signal?.addEventListener("abort", abort);
    this.#open.set(id, (message) => {
      if (message.isFinal) signal?.removeEventListener("abort", abort);
      receive(message);
    });
    return id;
  }

  #check(modelName: string): void {
    if (typeof modelName !== "string" || modelName === "") {
      throw new TypeError(
        `Name of the model to call must be a text, got ${Deno.inspect(modelName)}`,
      );
    }
    if (!this.areAllowed) {
      throw codedError("UNAVAILABLE", "BLS is only supported during the 'execute' function.");
    }
    if (this.#open.size >= MAX_OPEN_CALLS) {
      throw codedError("UNAVAILABLE", `more than ${MAX_OPEN_CALLS} calls of models are open`);
    }
  }

  /** Takes a reply to a call. */
  receive(reader: FrameReader): void {
    const id = reader.u32();
    const isFinal = reader.u8() === 1;
    const receive = this.#open.get(id);
    if (isFinal) this.#open.delete(id);
    receive?.({ ...readReply(reader), isFinal });
  }
}

/** @throws TypeError for what the types do not allow, RangeError for numbers that a request cannot have. */
function checkCall(call: ModelCall): void {
  const { modelVersion, id, correlationId, priority = 0, timeoutUs = 0 } = call;
  for (const [name, value] of Object.entries({ modelVersion, id })) {
    if (value === undefined || typeof value === "string") continue;
    throw new TypeError(`'${name}' of a call must be a text, got ${Deno.inspect(value)}`);
  }
  for (const [name, value] of Object.entries({ priority, timeoutUs })) {
    if (Number.isInteger(value) && value >= 0 && value < 2 ** 64) continue;
    throw new RangeError(
      `'${name}' of a call must be a whole number from 0 on, got ${Deno.inspect(value)}`,
    );
  }
  if (correlationId === undefined || typeof correlationId === "string") return;
  if (typeof correlationId !== "bigint") {
    const got = Deno.inspect(correlationId);
    throw new TypeError(`'correlationId' of a call must be a bigint or a text, got ${got}`);
  }
  if (BigInt.asUintN(64, correlationId) !== correlationId) {
    throw new RangeError(`'correlationId' of a call must fit into 64 bits, got ${correlationId}`);
  }
}

function readReply(reader: FrameReader): Omit<Message, "isFinal"> {
  switch (reader.u8()) {
    case OUTCOME.response:
      return { result: new Reply(reader) };
    case OUTCOME.error: {
      const code = reader.text() as Parameters<typeof codedError>[0];
      return { error: codedError(code, reader.text()) };
    }
    default:
      return {};
  }
}

class Reply implements CallResult {
  readonly modelName: string;
  readonly modelVersion: string;
  readonly id: string;
  readonly parameters: Readonly<Record<string, ParameterValue>>;
  readonly outputs: Readonly<Record<string, ModelTensor>>;

  constructor(reader: FrameReader) {
    this.modelName = reader.text();
    this.modelVersion = reader.text();
    this.id = reader.text();
    this.parameters = reader.parameters();
    this.outputs = readTensors(reader, true);
  }

  output<Type extends ModelTensor["datatype"]>(name: string, datatype: Type) {
    const wanted = { name, datatype, what: `output of model '${this.modelName}'` };
    return pickTensor(this.outputs, wanted, "INTERNAL");
  }
}
