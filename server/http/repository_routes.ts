import type { JsonObject } from "../../proto/json_value.ts";
import { checkModelName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import type { ModelIndexEntry } from "../core/inference_api.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { decodeBase64 } from "./base64.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { EMPTY_JSON_RESPONSE, type JsonOutput, jsonResponse } from "./json_response.ts";
import { readObject } from "./request_json.ts";

/** `POST /v2/repository[/{REPO}]/index` (http.md §5.1). */
export async function postIndex(
  context: HttpContext,
  request: HttpRequest,
): Promise<HttpResponse> {
  const ready = readObject(context, request)?.get("ready") ?? false;
  if (typeof ready !== "boolean") {
    throw new ServerError("INVALID_ARG", "Invalid value for 'ready': expected a boolean");
  }
  const entries = await context.api.repositoryIndex(ready);
  return jsonResponse(entries.map(indexJson));
}

function indexJson({ name, version, state, reason }: ModelIndexEntry): JsonOutput {
  return { name, version, state, reason: reason === "" ? undefined : reason };
}

/** `POST /v2/repository/models/M/load` (http.md §5.2). */
export async function postLoad(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  checkPath(path);
  const parameters = loadParameters(readParameters(context, request));
  await context.api.loadModel(path.model, parameters);
  return EMPTY_JSON_RESPONSE;
}

/** `POST /v2/repository/models/M/unload` (http.md §5.3). */
export async function postUnload(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  checkPath(path);
  const flag = readParameters(context, request)?.get("unload_dependents") ?? false;
  if (typeof flag !== "boolean") {
    throw new ServerError(
      "INVALID_ARG",
      "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean",
    );
  }
  await context.api.unloadModel(path.model, { unloadDependents: flag });
  return EMPTY_JSON_RESPONSE;
}

function checkPath({ model, repository }: PathParts): void {
  checkModelName(model);
  if (repository !== "") {
    throw new ServerError("UNSUPPORTED", "'repository_name' specification is not supported");
  }
}

function readParameters(context: HttpContext, request: HttpRequest): JsonObject | undefined {
  const parameters = readObject(context, request)?.get("parameters");
  if (parameters === undefined || parameters instanceof Map) return parameters;
  throw new ServerError(
    "INVALID_ARG",
    "Unable to parse 'parameters': attempt to access JSON non-object as object",
  );
}

function loadParameters(members: JsonObject | undefined): Record<string, string | Uint8Array> {
  const parameters: Record<string, string | Uint8Array> = {};
  for (const [key, value] of members ?? []) {
    if (typeof value !== "string") {
      throw new ServerError(
        "INVALID_ARG",
        `Unable to parse '${key}': attempt to access JSON non-string as string`,
      );
    }
    if (key === "config") {
      parameters[key] = value;
    } else if (key.startsWith("file:")) {
      parameters[key] = decodeBase64(value);
    } else {
      throw new ServerError(
        "INVALID_ARG",
        `unexpected error on creating Triton parameter '${key}', expected 'config' or 'file:<path>'`,
      );
    }
  }
  return parameters;
}
