import type { RequestTrace } from "../core/inference_api.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { errorResponse } from "./error_response.ts";
import type { HttpContext, PathParts } from "./http_context.ts";

/** Begins the trace of an inference request, if it is to be traced; looks at nothing otherwise. */
export function startTrace(
  { api }: HttpContext,
  { headers, arrivedMs }: HttpRequest,
  { model, version }: PathParts,
): RequestTrace | undefined {
  if (api.traceTime() === 0) return undefined;
  const trace = api.startTrace({ name: model, version }, headers);
  if (trace === undefined) return undefined;
  // 0 when nothing was traced yet as the request arrived.
  trace.mark("HTTP_RECV_START", arrivedMs === 0 ? undefined : arrivedMs);
  trace.mark("HTTP_RECV_END");
  return trace;
}

/** Notes when the answer is sent, and ends the trace. Never rejects. */
export async function traceAnswer(
  trace: RequestTrace,
  { signal }: HttpRequest,
  answering: () => HttpResponse | Promise<HttpResponse>,
): Promise<HttpResponse> {
  let response: HttpResponse;
  try {
    response = await answering();
  } catch (reason) {
    response = errorResponse(reason);
  }
  const { onSent } = response;
  if (!signal.aborted) trace.mark("HTTP_SEND_START");
  return {
    ...response,
    onSent: () => {
      onSent?.();
      if (!signal.aborted) trace.mark("HTTP_SEND_END");
      trace.end();
    },
  };
}
