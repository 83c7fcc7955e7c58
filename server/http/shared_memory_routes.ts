import { type JsonObject, wrongType } from "../../proto/json_value.ts";
import { ServerError } from "../../proto/status.ts";
import type { SharedMemoryKind, SharedMemoryRegion } from "../core/inference_api.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { decodeBase64 } from "./base64.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { EMPTY_JSON_RESPONSE, type JsonOutput, jsonResponse } from "./json_response.ts";
import { readObject } from "./request_json.ts";

const MAX_UINT64 = (1n << 64n) - 1n;
const HANDLE_BYTE_SIZE = 64;

/** `GET /v2/systemsharedmemory[/region/R]/status` (http.md §6). */
export function getSystemSharedMemory(
  { api }: HttpContext,
  _request: HttpRequest,
  { region }: PathParts,
): HttpResponse {
  return jsonResponse(api.sharedMemoryStatus("system", region).map(regionJson));
}

/** `GET /v2/cudasharedmemory[/region/R]/status`. */
export function getCudaSharedMemory(
  { api }: HttpContext,
  _request: HttpRequest,
  { region }: PathParts,
): HttpResponse {
  return jsonResponse(api.sharedMemoryStatus("cuda", region).map(regionJson));
}

function regionJson(region: SharedMemoryRegion): JsonOutput {
  const { name, byteSize } = region;
  if (region.kind === "cuda") return { name, device_id: region.deviceId, byte_size: byteSize };
  return { name, key: region.key, offset: region.offset, byte_size: byteSize };
}

/** `POST /v2/systemsharedmemory[/region/R]/unregister`: one region, or all. */
export function unregisterSystemSharedMemory(
  { api }: HttpContext,
  _request: HttpRequest,
  { region }: PathParts,
): HttpResponse {
  api.unregisterSharedMemory("system", region);
  return EMPTY_JSON_RESPONSE;
}

/** `POST /v2/cudasharedmemory[/region/R]/unregister`. */
export function unregisterCudaSharedMemory(
  { api }: HttpContext,
  _request: HttpRequest,
  { region }: PathParts,
): HttpResponse {
  api.unregisterSharedMemory("cuda", region);
  return EMPTY_JSON_RESPONSE;
}

/** `POST /v2/systemsharedmemory/region/R/register`. */
export async function registerSystemSharedMemory(
  context: HttpContext,
  request: HttpRequest,
  { region: name }: PathParts,
): Promise<HttpResponse> {
  const fields = readFields(context, request, { kind: "system", name });
  const key = requiredField(fields, "key");
  if (typeof key !== "string") throw wrongType("key", "string");
  await context.api.registerSystemSharedMemory({
    kind: "system",
    name,
    key,
    offset: unsigned("offset", fields.get("offset") ?? 0n),
    byteSize: unsigned("byte_size", requiredField(fields, "byte_size")),
  });
  return EMPTY_JSON_RESPONSE;
}

/** `POST /v2/cudasharedmemory/region/R/register`. */
export async function registerCudaSharedMemory(
  context: HttpContext,
  request: HttpRequest,
  { region: name }: PathParts,
): Promise<HttpResponse> {
  const fields = readFields(context, request, { kind: "cuda", name });
  const handle = requiredField(fields, "raw_handle");
  if (!(handle instanceof Map)) throw wrongType("raw_handle", "object");
  const text = requiredField(handle, "b64");
  if (typeof text !== "string") throw wrongType("b64", "string");
  const rawHandle = decodeBase64(text);
  const byteSize = unsigned("byte_size", requiredField(fields, "byte_size"));
  const deviceId = unsigned("device_id", requiredField(fields, "device_id"));
  if (rawHandle.byteLength !== HANDLE_BYTE_SIZE) {
    throw invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  await context.api.registerCudaSharedMemory({ kind: "cuda", name, deviceId, byteSize }, rawHandle);
  return EMPTY_JSON_RESPONSE;
}

/** The members of a register request; an empty body has none. */
function readFields(
  context: HttpContext,
  request: HttpRequest,
  { kind, name }: { kind: SharedMemoryKind; name: string },
): JsonObject {
  if (name === "") {
    throw invalid(`'region name' is necessary to register ${kind} shared memory region`);
  }
  context.api.checkSharedMemoryAllowed();
  return readObject(context, request) ?? new Map();
}

function requiredField(fields: JsonObject, name: string) {
  const value = fields.get(name);
  if (value !== undefined) return value;
  throw invalid(`Shared memory register request has no '${name}' field`);
}

function unsigned(name: string, value: unknown): bigint {
  if (typeof value === "bigint" && value >= 0n && value <= MAX_UINT64) return value;
  throw wrongType(name, "unsigned-integer");
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}
