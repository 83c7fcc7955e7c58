import { ServerError } from "../../proto/status.ts";
import type { Clock } from "../core/clock.ts";
import type { InferenceServer } from "../core/inference_server.ts";
import type { ServerLog } from "../core/log.ts";
import type { Listener } from "../transport/listener.ts";
import { createConnectedHandler } from "./connected_handler.ts";
import { formatEndpoint, type ServeOptions } from "./serve_options.ts";

/** A listener with its name for people. */
export interface Service {
  readonly name: "HTTP" | "gRPC" | "Metrics";
  readonly scheme: "http" | "https" | "grpc" | "grpcs";
  readonly listener: Listener;
}

/** What the services serve and use. */
export interface ServiceParts {
  readonly server: InferenceServer;
  readonly clock: Clock;
  readonly log: ServerLog;
}
