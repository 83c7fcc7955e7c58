import type { CallMessage, CallOptions, ModelHost } from "../../backends/backend.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { CustomMetrics } from "./custom_metrics.ts";
import type { InferenceApi, RequestTrace, StreamedResponse } from "./inference_api.ts";
import { Trace } from "./trace.ts";

/** What models may ask of an engine. `engine` is looked up at each call: backends are made before there is one. */
export function createModelHost(engine: () => InferenceApi, metrics: CustomMetrics): ModelHost {
  return {
    infer: (request, receive, options) => callModel(engine(), request, receive, options),
    isModelReady: (name, version) => Promise.try(() => engine().isModelReady(name, version)),
    loadModel: (name, parameters) => engine().loadModel(name, parameters),
    unloadModel: (name, options) => engine().unloadModel(name, options),
    openMetricFamily: (kind, name, description) => metrics.openFamily(kind, name, description),
  };
}

async function callModel(
  api: InferenceApi,
  request: InferRequest,
  receive: (message: CallMessage) => Promise<void> | undefined,
  { decoupled, signal, trace }: CallOptions,
): Promise<void> {
  const toMessage = ({ response, error, isFinal }: StreamedResponse): CallMessage => {
    if (error !== undefined) return { error, isFinal };
    if (response === undefined) return { isFinal: true };
    return { response, isFinal, release: () => api.releaseResponse(response) };
  };
  let isOver = false;
  try {
    const { modelName, modelVersion } = request;
    if (!decoupled && api.isDecoupled(modelName, modelVersion)) {
      throw new ServerError("INVALID_ARG", `Model ${modelName} is using the decoupled.`);
    }
    await api.inferStream(request, (message) => {
      isOver = message.isFinal;
      return receive(toMessage(message));
    }, {
      ...(signal === undefined ? {} : { signal }),
      trace: trace instanceof Trace ? childOf(trace) : undefined,
    });
    // A call that was given up ends without a message.
    if (!isOver) void receive({ error: new ServerError("CANCELLED", ""), isFinal: true });
  } catch (reason) {
    if (!isOver) void receive({ error: ServerError.from(reason), isFinal: true });
  }
}

function childOf(trace: Trace): RequestTrace | undefined {
  return trace.createChild();
}
