import type { InferenceApi } from "../core/inference_api.ts";
import type { HttpHandler, HttpResponse, RequestHead } from "../transport/transport.ts";
import { BodyCodec } from "./body_codec.ts";
import { errorResponse, statusResponse } from "./error_response.ts";
import type { Endpoint, HttpContext, PathParts, RouteCall } from "./http_context.ts";
import type { HttpOptions } from "./http_options.ts";
import { parseModelVersion } from "./model_version.ts";
import { matchRoute, type Route } from "./routes.ts";

/** Targets whose route is remembered, and the longest of them. */
const CACHE_ENTRIES = 4096;
const CACHE_TARGET_LENGTH = 256;

/** The HTTP/REST frontend. Disposing it ends the thread that works on large bodies. */
export type HttpFrontend = HttpHandler & Disposable;

/** Creates the handler of every REST endpoint (http.md) over the given facade. */
export function createHttpHandler(api: InferenceApi, options: HttpOptions): HttpFrontend {
  const codec = new BodyCodec();
  const context: HttpContext = { api, options, codec };
  const routes = new RouteCache();
  return {
    admit(head) {
      const call = findCall(routes.get(head.target), head, options);
      return typeof call === "function" ? undefined : call;
    },
    arrivalTime: () => api.traceTime(),
    handle(request) {
      options.onRequest?.(request);
      const route = routes.get(request.target);
      const call = findCall(route, request, options);
      if (typeof call !== "function") return call;
      try {
        const path = resolveVersion(route!.path, api);
        if (path === undefined) return statusResponse(404, "Not Found");
        const answer = call(context, request, path);
        return answer instanceof Promise ? answer.catch(errorResponseOf) : answer;
      } catch (reason) {
        return errorResponse(reason);
      }
    },
    [Symbol.dispose]() {
      codec[Symbol.dispose]();
    },
  };
}

function errorResponseOf(reason: unknown): HttpResponse {
  return errorResponse(reason);
}

/** The function that answers a request, or the answer when it may not be called at all. */
function findCall(
  route: Route | undefined,
  head: RequestHead,
  { restrictedApis }: HttpOptions,
): RouteCall | HttpResponse {
  if (route === undefined) return statusResponse(404, "Not Found");
  const { endpoint } = route;
  // Decided on the route that is about to be called, however the path was spelled, and before anything else.
  const required = restrictedApis.get(endpoint.category);
  if (required !== undefined && head.headers.get(required.key) !== required.value) {
    return statusResponse(403, `This API is restricted, expecting header '${required.key}'`);
  }
  const { method } = head;
  const call = method === "GET" ? endpoint.GET : method === "POST" ? endpoint.POST : undefined;
  return call ?? statusResponse(405, "Method Not Allowed", [["allow", allowedMethods(endpoint)]]);
}

function allowedMethods({ GET, POST }: Endpoint): string {
  if (GET === undefined) return "POST";
  return POST === undefined ? "GET" : "GET, POST";
}

/** The path with a version of digits; undefined for a label of a model that has none: there is no such path. */
function resolveVersion(path: PathParts, api: InferenceApi): PathParts | undefined {
  const { model, version } = path;
  if (version === "") return path;
  if (/^[0-9]/.test(version)) return { ...path, version: parseModelVersion(version) };
  const labelled = api.versionOfLabel(model, version);
  return labelled === undefined ? undefined : { ...path, version: labelled };
}

/** Routes by target: clients ask for the same few again and again. */
class RouteCache {
  readonly #routes = new Map<string, Route | undefined>();

  get(target: string): Route | undefined {
    const known = this.#routes.get(target);
    if (known !== undefined) return known;
    const route = matchRoute(target);
    if (route !== undefined && target.length <= CACHE_TARGET_LENGTH) {
      // Emptied as a whole: whoever sends ever new targets only loses the time of a match.
      if (this.#routes.size >= CACHE_ENTRIES) this.#routes.clear();
      this.#routes.set(target, route);
    }
    return route;
  }
}
