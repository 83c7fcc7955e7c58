import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { CallCancellation } from "../call_cancellation.ts";
import type { CallMessage, ModelHost, ModelTrace } from "../backend.ts";
import { readCorrelationId, readFlags, readTimeout } from "./request_wire.ts";
import { codeNumber } from "./result_wire.ts";
import type { FrameBody, FramePort } from "../process/stub_link.ts";
import type { StubMemory } from "../process/stub_memory.ts";
import type { Frame } from "../process/frame.ts";
import { FRAME } from "./stub_wire.ts";
import { type ReadTensors, readTensors, type TensorWriter } from "../process/tensor_wire.ts";
import { formatParameters, readParameters } from "../process/wire_values.ts";

/** Items of a stream that may be on their way (wire.md, CALL_CREDIT). */
const WINDOW = 64;

/** What a call is made with. */
export interface ModelCallParts {
  readonly host: ModelHost;
  readonly memory: StubMemory;
  /** Where the answer goes. */
  readonly port: FramePort;
  /** Undefined for connections whose tensors all come in the frames. */
  readonly peer: StubMemory["peer"];
  readonly traceOf: (request: unknown) => ModelTrace | undefined;
}

interface WireResult {
  readonly result: FrameBody;
  readonly writer?: TensorWriter;
}

/** A request that a model makes to another model (`infer`, `stream`). */
export class ModelCall {
  readonly #parts: ModelCallParts;
  readonly #id: number;
  readonly #isStream: boolean;
  readonly #cancellation = new CallCancellation();
  #isAnswered = false;
  #outstandingCount = 0;
  #room: PromiseWithResolvers<void> | undefined;

  constructor(parts: ModelCallParts, { id, json }: Frame) {
    this.#parts = parts;
    this.#id = id;
    this.#isStream = json.m === "stream";
  }

  /** Makes it. Never rejects. @throws RangeError, SyntaxError for a frame that cannot be */
  run({ json, payload }: Frame): Promise<void> {
    const { peer } = this.#parts;
    const inputs = readTensors(json.n ?? [], { payload, peer });
    return this.#run(readRequest(json, inputs), inputs, json.y);
  }

  /** Nobody wants the answer any more. */
  cancel(): void {
    this.#cancellation.cancel();
  }

  /** The process has taken so many items. */
  credit(count: number): void {
    this.#outstandingCount -= count;
    if (this.#outstandingCount >= WINDOW) return;
    this.#room?.resolve();
    this.#room = undefined;
  }

  /** The process is gone. */
  close(): void {
    this.#isAnswered = true;
    this.cancel();
    this.credit(Infinity);
  }

  async #run(request: InferRequest, { slots }: ReadTensors, traced: unknown): Promise<void> {
    const { host, memory, peer, traceOf } = this.#parts;
    if (slots.length > 0) peer!.hold();
    try {
      await host.infer(request, (message) => this.#receive(message, request.modelName), {
        decoupled: this.#isStream,
        signal: this.#cancellation,
        trace: traceOf(traced),
      });
    } catch (reason) {
      this.#receive({ error: ServerError.from(reason), isFinal: true }, request.modelName);
    } finally {
      if (slots.length > 0) {
        memory.giveBack(slots);
        peer!.release();
      }
    }
  }

  #receive(message: CallMessage, modelName: string): Promise<void> | undefined {
    try {
      return this.#answer(message, modelName);
    } finally {
      if ("response" in message) message.release();
    }
  }

  #answer(message: CallMessage, modelName: string): Promise<void> | undefined {
    const isEmpty = !("error" in message) && !("response" in message);
    if (this.#isAnswered) return undefined;
    const { result, writer } = this.#result(message, modelName);
    if (!this.#isStream) {
      if (isEmpty && !message.isFinal) return undefined;
      this.#isAnswered = true;
      this.#send(FRAME.reply, isEmpty ? { o: [] } : result, writer);
      return undefined;
    }
    this.#isAnswered = message.isFinal;
    const item = { ...(isEmpty ? {} : { r: result }), ...(message.isFinal ? { l: true } : {}) };
    this.#send(FRAME.item, item, writer);
    if (++this.#outstandingCount < WINDOW || message.isFinal) return undefined;
    return (this.#room ??= Promise.withResolvers()).promise;
  }

  #send(kind: number, body: FrameBody, writer: TensorWriter | undefined): void {
    try {
      this.#parts.port.send(kind, this.#id, body, writer?.payload);
    } catch (reason) {
      writer?.discard();
      const error = errorResult(ServerError.from(reason));
      const isReply = kind === FRAME.reply;
      this.#parts.port.send(kind, this.#id, isReply ? error : { ...body, r: error });
    }
  }

  #result(message: CallMessage, modelName: string): WireResult {
    if ("error" in message) return { result: errorResult(calleeError(message.error, modelName)) };
    if (!("response" in message)) return { result: {} };
    const { response } = message;
    const writer = this.#parts.memory.writer();
    try {
      const result: FrameBody = { o: writer.writeAll(response.outputs) };
      const parameters = formatParameters(response.parameters);
      if (parameters !== "{}") result.p = parameters;
      return { result, writer };
    } catch (reason) {
      return { result: errorResult(ServerError.from(reason)) };
    }
  }
}

function errorResult({ code, message }: ServerError): FrameBody {
  return { e: [codeNumber(code), message] };
}

/** Requests that no model took fail in other words than those that failed in a model (python-backend.md §A9). */
function calleeError(error: ServerError, modelName: string): ServerError {
  if (!error.isRefusal && error.code !== "NOT_FOUND") return error;
  const prefix = `Model ${modelName} - Error when running inference: `;
  if (error.message.startsWith(prefix)) return error;
  return new ServerError("INTERNAL", `${prefix}${error.message}`, { cause: error });
}

function readRequest(json: Frame["json"], { tensors }: ReadTensors): InferRequest {
  const { model, version = -1, id = "", o: names = [] } = json;
  const isVersion = Number.isSafeInteger(version);
  if (typeof model !== "string" || typeof id !== "string" || !isVersion || !Array.isArray(names)) {
    throw new RangeError("Expected model, version, id and outputs of a call");
  }
  return {
    modelName: model,
    modelVersion: version === -1 ? "" : String(version),
    id,
    correlationId: readCorrelationId(json.c),
    ...readFlags(json.g),
    priority: 0,
    timeoutUs: readTimeout(json.t),
    parameters: readParameters(json.p) ?? {},
    inputs: tensors,
    outputs: names.map((name: unknown) => ({ name: String(name), classificationCount: 0 })),
  };
}
