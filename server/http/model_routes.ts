import { formatModelConfigJson } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import type { TensorDescription } from "../../proto/infer.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { statusResponse } from "./error_response.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { JSON_HEADERS, type JsonOutput, jsonResponse } from "./json_response.ts";
import { statisticsJson } from "./statistics_json.ts";

const OK: HttpResponse = { status: 200 };
const NOT_READY: HttpResponse = { status: 400 };

/** `GET /v2/health/live` (http.md §3). */
export function getLive({ api }: HttpContext): HttpResponse {
  checkNotExiting(api.isExiting());
  return api.isLive() ? OK : NOT_READY;
}

/** `GET /v2/health/ready`. */
export function getReady({ api }: HttpContext): HttpResponse {
  checkNotExiting(api.isExiting());
  return api.isReady() ? OK : NOT_READY;
}

function checkNotExiting(isExiting: boolean): void {
  if (isExiting) throw new ServerError("UNAVAILABLE", "Server exiting");
}

/** `GET /v2/models/M[/versions/V]/ready`. */
export function getModelReady(
  { api }: HttpContext,
  _request: HttpRequest,
  { model, version }: PathParts,
): HttpResponse | Promise<HttpResponse> {
  if (api.isExiting() || !api.isLive()) throw new ServerError("UNAVAILABLE", "Server not ready");
  const isReady = api.isModelReady(model, version);
  return typeof isReady === "boolean" ? readyAnswer(isReady) : isReady.then(readyAnswer);
}

function readyAnswer(isReady: boolean): HttpResponse {
  if (isReady) return OK;
  throw new ServerError("INVALID_ARG", "Model version not ready");
}

/** `GET /v2` (http.md §4). */
export function getServerMetadata({ api }: HttpContext): HttpResponse {
  const { name, version, extensions } = api.serverMetadata();
  return jsonResponse({ name, version, extensions });
}

/** `GET /v2/devices`: what this machine has, and what each backend can use. */
export async function getDevices({ options }: HttpContext): Promise<HttpResponse> {
  const devices = await options.describeDevices?.();
  return devices === undefined ? statusResponse(404, "Not Found") : jsonResponse(devices);
}

/** `GET /v2/models/M[/versions/V]`. */
export function getModelMetadata(
  { api }: HttpContext,
  _request: HttpRequest,
  { model, version }: PathParts,
): HttpResponse {
  const { name, versions, platform, inputs, outputs } = api.modelMetadata(model, version);
  return jsonResponse({
    name,
    versions,
    platform,
    inputs: inputs.map(describeTensor),
    outputs: outputs.map(describeTensor),
  });
}

function describeTensor({ name, datatype, shape }: TensorDescription): JsonOutput {
  return { name, datatype, shape };
}

/** `GET /v2/models/M[/versions/V]/config`. */
export function getModelConfig(
  { api }: HttpContext,
  _request: HttpRequest,
  { model, version }: PathParts,
): HttpResponse {
  const text = formatModelConfigJson(api.modelConfig(model, version));
  return { status: 200, headers: JSON_HEADERS, body: [new TextEncoder().encode(text)] };
}

/** `GET /v2/models/stats` and `GET /v2/models/M[/versions/V]/stats` (observability.md §3.1). */
export function getStatistics(
  { api }: HttpContext,
  _request: HttpRequest,
  { model, version }: PathParts,
): HttpResponse {
  return jsonResponse(statisticsJson(api.modelStatistics(model, version)));
}
