import type { InferenceApi } from "../core/inference_api.ts";
import type { ApiCategory } from "../core/options_frontend.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import type { BodyCodec } from "./body_codec.ts";
import type { HttpOptions } from "./http_options.ts";

/** What every route gets. */
export interface HttpContext {
  readonly api: InferenceApi;
  readonly options: HttpOptions;
  readonly codec: BodyCodec;
}

/** The variable parts of a matched path, decoded; "" = not there. */
export interface PathParts {
  readonly model: string;
  /** Digits or a label as given; for the functions that are called always digits. */
  readonly version: string;
  readonly region: string;
  readonly repository: string;
}

/** One way to call an endpoint. */
export type RouteCall = (
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
) => HttpResponse | Promise<HttpResponse>;

/** An endpoint: what it belongs to, and what it does for each method it knows. */
export interface Endpoint {
  readonly category: ApiCategory;
  readonly GET?: RouteCall;
  readonly POST?: RouteCall;
}
