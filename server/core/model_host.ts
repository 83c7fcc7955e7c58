import type { CallMessage, CallOptions, ModelHost } from "../../backends/backend.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { CustomMetrics } from "./custom_metrics.ts";
import type { InferenceApi, StreamedResponse } from "./inference_api.ts";
import { Trace } from "./trace.ts";

/** Calls of all models that may run at the same time: models that call themselves without end come to an end here. */
const CALL_COUNT_MAX = 8192;

const CALL = { isCall: true } as const;

type Receive = (message: CallMessage) => Promise<void> | undefined;

/** What models may ask of an engine. `engine` is looked up at each call: backends are made before there is one. */
export function createModelHost(engine: () => InferenceApi, metrics: CustomMetrics): ModelHost {
  let callCount = 0;
  return {
    infer: async (request, receive, options) => {
      callCount++;
      try {
        if (callCount > CALL_COUNT_MAX) throw tooManyCalls(request);
        await callModel(engine(), request, receive, options);
      } catch (refusal) {
        deliver(receive, { error: ServerError.refusal(refusal), isFinal: true });
      } finally {
        callCount--;
      }
    },
    isModelReady: async (name, version) => await isModelReady(engine(), name, version),
    loadModel: async (name, parameters) => await engine().loadModel(name, parameters, CALL),
    unloadModel: async (name, options) => await engine().unloadModel(name, { ...options, ...CALL }),
    openMetricFamily: (kind, name, description) => metrics.openFamily(kind, name, description),
  };
}

/** Runs a call to its end. @throws ServerError when the request was refused; nothing was delivered then. */
async function callModel(
  api: InferenceApi,
  called: InferRequest,
  receive: Receive,
  { decoupled, signal, trace }: CallOptions,
): Promise<void> {
  const request = called.modelVersion === "-1" ? { ...called, modelVersion: "" } : called;
  checkCallee(api, request, decoupled);
  let isOver = false;
  try {
    await api.inferStream(request, (message) => {
      // What comes behind the end of a call that was given up nobody takes any more.
      isOver = message.isFinal;
      return deliver(receive, toMessage(api, message));
    }, {
      ...(signal === undefined ? {} : { signal }),
      trace: trace instanceof Trace ? trace.createChild() : undefined,
      isCall: true,
      takesAfterAbort: decoupled,
    });
  } catch (reason) {
    if (ServerError.from(reason).isRefusal) throw reason;
    deliver(receive, { error: ServerError.from(reason), isFinal: true });
    return;
  }
  // A call that was given up ends without a message.
  if (!isOver) deliver(receive, { error: new ServerError("CANCELLED", ""), isFinal: true });
}

function toMessage(
  api: InferenceApi,
  { response, error, isFinal }: StreamedResponse,
): CallMessage {
  if (error !== undefined) return { error, isFinal };
  if (response === undefined) return { isFinal: true };
  return { response, isFinal, release: () => api.releaseResponse(response) };
}

/** A receiver that fails must not take the model with it that was called. */
function deliver(receive: Receive, message: CallMessage): Promise<void> | undefined {
  try {
    return receive(message);
  } catch {
    if ("response" in message) message.release();
    return undefined;
  }
}

/** The refusals of a call (python-backend.md §A9). @throws ServerError */
function checkCallee(
  api: InferenceApi,
  { modelName: name, modelVersion: version }: InferRequest,
  decoupled: boolean,
): void {
  let isDecoupled: boolean;
  try {
    isDecoupled = api.isDecoupled(name, version);
  } catch (reason) {
    throw notReadyError(name, ServerError.from(reason));
  }
  if (decoupled || !isDecoupled) return;
  throw new ServerError(
    "INVALID_ARG",
    `Model ${name} is using the decoupled. The current BLS request call doesn't support models ` +
      `using the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' ` +
      `or 'async_exec' calls for decoupled models.'`,
  );
}

/** A model nobody knows is told as it is; one that does not serve in the reference's words, with the reason. */
function notReadyError(name: string, error: ServerError): ServerError {
  const { code, message } = error;
  if (code !== "NOT_FOUND" && code !== "UNAVAILABLE") return error;
  if (isUnknown(name, error)) return error;
  return new ServerError(
    code,
    `Failed for execute the inference request. Model '${name}' is not ready. (${message})`,
    { cause: error },
  );
}

/** @throws ServerError for a model nobody knows, and for a text that is no version. */
async function isModelReady(api: InferenceApi, name: string, version: string): Promise<boolean> {
  if (!api.isLive() || api.isExiting()) throw new ServerError("UNAVAILABLE", "Server not ready");
  try {
    return await api.isModelReady(name, version === "-1" ? "" : version);
  } catch (reason) {
    const error = ServerError.from(reason);
    if (error.code === "UNAVAILABLE") return false;
    if (error.code === "NOT_FOUND" && !isUnknown(name, error)) return false;
    throw error;
  }
}

function isUnknown(name: string, { message }: ServerError): boolean {
  return message === `Request for unknown model: '${name}' is not found`;
}

function tooManyCalls({ modelName }: InferRequest): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    `cannot call model '${modelName}': ${CALL_COUNT_MAX} calls of models are in flight, which is ` +
      `the most; does a model call itself without end?`,
  );
}
