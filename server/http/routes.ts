import { postGenerate, postGenerateStream } from "./generate_route.ts";
import type { Endpoint, PathParts, RouteCall } from "./http_context.ts";
import { postInfer } from "./infer_route.ts";
import {
  getDevices,
  getLive,
  getModelConfig,
  getModelMetadata,
  getModelReady,
  getReady,
  getServerMetadata,
  getStatistics,
} from "./model_routes.ts";
import { postIndex, postLoad, postUnload } from "./repository_routes.ts";
import {
  getCudaSharedMemory,
  getSystemSharedMemory,
  registerCudaSharedMemory,
  registerSystemSharedMemory,
  unregisterCudaSharedMemory,
  unregisterSystemSharedMemory,
} from "./shared_memory_routes.ts";
import {
  getLogSettings,
  getTraceSettings,
  postLogSettings,
  postTraceSettings,
} from "./trace_log_routes.ts";

/** A path that leads to an endpoint. */
export interface Route {
  readonly endpoint: Endpoint;
  readonly path: PathParts;
}

/** A number, or what may be a label of a version. */
const VERSION = /^(?:[0-9]+|[A-Za-z][A-Za-z0-9_.-]*)$/;

const NO_PARTS: PathParts = { model: "", version: "", region: "", repository: "" };

const SERVER_METADATA: Endpoint = { category: "metadata", GET: getServerMetadata };
const DEVICES: Endpoint = { category: "metadata", GET: getDevices };
const STATISTICS: Endpoint = { category: "statistics", GET: getStatistics };
const LOGGING: Endpoint = { category: "logging", GET: getLogSettings, POST: postLogSettings };
const TRACE: Endpoint = { category: "trace", GET: getTraceSettings, POST: postTraceSettings };
const INDEX: Endpoint = { category: "model-repository", POST: postIndex };

/** `/v2/health/…` */
const HEALTH: ReadonlyMap<string, Endpoint> = new Map([
  ["live", { category: "health", GET: getLive }],
  ["ready", { category: "health", GET: getReady }],
]);

/** `/v2/models/M[/versions/V]/…`; "" = nothing follows. */
const MODEL: ReadonlyMap<string, Endpoint> = new Map<string, Endpoint>([
  ["", { category: "metadata", GET: getModelMetadata }],
  ["ready", { category: "health", GET: getModelReady }],
  ["config", { category: "model-config", GET: getModelConfig }],
  ["stats", STATISTICS],
  ["infer", { category: "inference", POST: postInfer }],
  ["generate", { category: "inference", POST: postGenerate }],
  ["generate_stream", { category: "inference", POST: postGenerateStream }],
]);

/** `/v2/repository[/REPO]/models/M/…` */
const MODEL_CONTROL: ReadonlyMap<string, Endpoint> = new Map([
  ["load", { category: "model-repository", POST: postLoad }],
  ["unload", { category: "model-repository", POST: postUnload }],
]);

function sharedMemory(status: RouteCall, register: RouteCall, unregister: RouteCall) {
  return new Map<string, Endpoint>([
    ["status", { category: "shared-memory", GET: status }],
    ["register", { category: "shared-memory", POST: register }],
    ["unregister", { category: "shared-memory", POST: unregister }],
  ]);
}

const SYSTEM_MEMORY = sharedMemory(
  getSystemSharedMemory,
  registerSystemSharedMemory,
  unregisterSystemSharedMemory,
);
const CUDA_MEMORY = sharedMemory(
  getCudaSharedMemory,
  registerCudaSharedMemory,
  unregisterCudaSharedMemory,
);

/** The route of a request target, query and all; undefined = no such path (http.md §2). */
export function matchRoute(target: string): Route | undefined {
  const segments = splitTarget(target);
  if (segments === undefined || segments[0] !== "v2") return undefined;
  const rest = segments.slice(2);
  switch (segments[1]) {
    case undefined:
      return { endpoint: SERVER_METADATA, path: NO_PARTS };
    case "devices":
      return rest.length === 0 ? found(DEVICES) : undefined;
    case "health":
      return rest.length === 1 ? found(HEALTH.get(rest[0]!)) : undefined;
    case "models":
      return matchModel(rest);
    case "repository":
      return matchRepository(rest);
    case "systemsharedmemory":
      return matchRegion(rest, SYSTEM_MEMORY);
    case "cudasharedmemory":
      return matchRegion(rest, CUDA_MEMORY);
    case "logging":
      return rest.length === 0 ? found(LOGGING) : undefined;
    case "trace":
      return rest.length === 1 && rest[0] === "setting" ? found(TRACE) : undefined;
    default:
      return undefined;
  }
}

function found(endpoint: Endpoint | undefined, parts: Partial<PathParts> = {}): Route | undefined {
  return endpoint === undefined ? undefined : { endpoint, path: { ...NO_PARTS, ...parts } };
}

/** The segments of the path, each decoded once; undefined when there is none or an escape is malformed. */
function splitTarget(target: string): string[] | undefined {
  const query = target.indexOf("?");
  let path = query < 0 ? target : target.slice(0, query);
  if (!path.startsWith("/")) {
    // The absolute form, as sent to proxies.
    const authority = path.indexOf("://");
    const slash = authority < 0 ? -1 : path.indexOf("/", authority + 3);
    if (slash < 0) return undefined;
    path = path.slice(slash);
  }
  try {
    return path.slice(1).split("/").map((segment) =>
      segment.includes("%") ? decodeURIComponent(segment) : segment
    );
  } catch {
    return undefined;
  }
}

function matchModel(segments: readonly string[]): Route | undefined {
  const [model, ...rest] = segments;
  if (model === undefined || model === "") return undefined;
  if (model === "stats" && rest.length === 0) return found(STATISTICS);
  if (rest.length === 2 && rest[0] === "trace" && rest[1] === "setting") {
    return found(TRACE, { model });
  }
  let version = "";
  if (rest[0] === "versions" && rest.length >= 2) {
    version = rest[1]!;
    if (!VERSION.test(version)) return undefined;
    rest.splice(0, 2);
  }
  if (rest.length > 1 || rest[0] === "") return undefined;
  return found(MODEL.get(rest[0] ?? ""), { model, version });
}

function matchRepository(segments: readonly string[]): Route | undefined {
  const last = segments.at(-1);
  if (last === "index" && segments.length <= 2) {
    return segments[0] === "" ? undefined : found(INDEX);
  }
  const endpoint = MODEL_CONTROL.get(last ?? "");
  if (endpoint === undefined) return undefined;
  // A name with slashes in it gets here too: it is refused with a reason, not as an unknown path.
  if (segments[0] === "models" && segments.length >= 3) {
    return found(endpoint, { model: segments.slice(1, -1).join("/") });
  }
  if (segments[1] === "models" && segments.length === 4) {
    return found(endpoint, { repository: segments[0]!, model: segments[2]! });
  }
  return undefined;
}

function matchRegion(
  segments: readonly string[],
  actions: ReadonlyMap<string, Endpoint>,
): Route | undefined {
  if (segments.length === 1) return found(actions.get(segments[0]!));
  if (segments.length !== 3 || segments[0] !== "region" || segments[1] === "") return undefined;
  return found(actions.get(segments[2]!), { region: segments[1]! });
}
