import { ServerError } from "../../proto/status.ts";
import { setListenerNoDelay } from "../../ffi/posix/socket.ts";
import type { Clock } from "../core/clock.ts";
import type { InferenceServer } from "../core/inference_server.ts";
import type { ServerLog } from "../core/log.ts";
import { createConnectHandler } from "../grpc/connect_adapter.ts";
import { DEFAULT_GRPC_OPTIONS, type GrpcOptions } from "../grpc/grpc_options.ts";
import { createGrpcHandler } from "../grpc/grpc_server.ts";
import type { HttpOptions } from "../http/http_options.ts";
import { createHttpHandler } from "../http/http_server.ts";
import { CpuSampler } from "../metrics/cpu_metrics.ts";
import { GpuSampler } from "../metrics/gpu_metrics.ts";
import { createMetricsHandler } from "../metrics/metrics_server.ts";
import { BufferPool } from "../transport/buffer_pool.ts";
import type { TransportLimits } from "../transport/limits.ts";
import { type Listener, openListener } from "../transport/listener.ts";
import type { ListenerOptions, TlsOptions } from "../transport/listener_options.ts";
import type { HttpHandler, RpcHandler } from "../transport/transport.ts";
import { createConnectFront, NOT_FOUND } from "./connect_front.ts";
import { findMemoryQuota, THIS_MACHINE } from "./memory_quota.ts";
import type { ProgramDevices } from "./program_devices.ts";
import {
  type Endpoint,
  formatEndpoint,
  type GrpcServiceOptions,
  type HttpServiceOptions,
  type MetricsServiceOptions,
  type ServeOptions,
  type TlsFiles,
} from "./serve_options.ts";

/** A listener with its name for people. */
export interface Service {
  readonly name: "HTTP" | "gRPC" | "Metrics";
  readonly scheme: "http" | "https" | "grpc" | "grpcs";
  /** Address as in the flags; with port 0 the port that was picked. */
  readonly address: string;
  readonly port: number;
  readonly listener: Listener;
  /** Closes the listener and ends what its handler started. */
  close(): void;
}

/** What the services serve and use. */
export interface ServiceParts {
  readonly server: InferenceServer;
  readonly clock: Clock;
  readonly log: ServerLog;
  readonly devices: ProgramDevices;
}

/** How one service is opened. */
interface ServicePlan {
  readonly name: Service["name"];
  /** The line that scripts wait for. */
  readonly title: string;
  readonly endpoint: Endpoint;
  readonly engine?: HttpServiceOptions["engine"];
  readonly handlers: { readonly http: HttpHandler; readonly rpc?: RpcHandler };
  readonly limits?: Partial<TransportLimits>;
  readonly tls?: TlsFiles;
  /** Ends what the handler started. */
  readonly onClose?: () => void;
}

/**
 * Opens the listeners of all services that are switched on.
 * @throws ServerError UNAVAILABLE when one cannot be opened; those opened before are closed again.
 */
export async function openServices(
  options: ServeOptions,
  parts: ServiceParts,
): Promise<readonly Service[]> {
  // Filling released buffers shows a use after release; it costs time, so it is for debugging.
  const poison = Deno.env.get("NEREID_POISON_BUFFERS") === "1";
  const pool = new BufferPool({ poison, maxBytes: await findMemoryQuota(THIS_MACHINE) });
  const services: Service[] = [];
  try {
    for (const plan of planServices(options, parts)) {
      const service = await openService(plan, pool, parts.log);
      services.push(service);
      parts.log.info(`Started ${plan.title} at ${formatEndpoint(service)}`);
    }
  } catch (reason) {
    for (const service of services) service.close();
    throw reason;
  }
  return services;
}

function planServices(options: ServeOptions, parts: ServiceParts): ServicePlan[] {
  const { http, grpc, metrics } = options;
  const rest = http && createHttpHandler(parts.server, toHttpOptions(http, parts));
  const grpcOptions = grpc && toGrpcOptions(grpc, parts);
  const rpc = grpcOptions && createGrpcHandler(parts.server, grpcOptions);
  const connect = grpcOptions && createConnectHandler(parts.server, grpcOptions);
  const plans: ServicePlan[] = [];
  const shared = http !== undefined && grpc !== undefined && mayShare(http, grpc);
  if (grpc !== undefined && rpc !== undefined && connect !== undefined) {
    const front = createConnectFront(connect, shared && rest ? rest : NOT_FOUND);
    plans.push({
      name: "gRPC",
      title: "GRPCInferenceService",
      endpoint: grpc,
      handlers: { http: front, rpc },
      limits: grpcLimits(grpc),
      ...(grpc.tls === undefined ? {} : { tls: grpc.tls }),
    });
  }
  if (http !== undefined && rest !== undefined) {
    const handlers = shared && rpc && connect
      ? { http: createConnectFront(connect, rest), rpc }
      : { http: rest };
    const { engine } = http;
    plans.push({
      name: "HTTP",
      title: "HTTPService",
      endpoint: http,
      engine,
      handlers,
      onClose: () => rest[Symbol.dispose](),
    });
  }
  if (metrics !== undefined) plans.push(planMetrics(metrics, parts));
  return plans;
}

/**
 * Each of the two listeners speaks both protocols only where that opens nothing: someone who binds one service to
 * another address, or asks its clients for certificates, wants it reached in no other way.
 */
function mayShare(http: HttpServiceOptions, grpc: GrpcServiceOptions): boolean {
  return http.address === grpc.address && grpc.tls === undefined;
}

function planMetrics(metrics: MetricsServiceOptions, parts: ServiceParts): ServicePlan {
  const cpu = new CpuSampler({
    intervalMs: metrics.intervalMs,
    now: () => parts.clock.now(),
    readText: (path) => Deno.readTextFile(path),
  });
  const gpu = metrics.gpuMetrics
    ? new GpuSampler({
      intervalMs: metrics.intervalMs,
      now: () => parts.clock.now(),
      setTimer: (delayMs, callback) => parts.clock.setTimer(delayMs, callback),
      read: () => parts.devices.machine.readGpus(),
    })
    : undefined;
  // Energy counts from here, about. Not before the ports are open: a driver may take its time to start.
  parts.clock.setTimer(0, () => void gpu?.sample());
  const http = createMetricsHandler(() => parts.server.metrics(), {
    counterLatencies: metrics.settings.counterLatencies,
    cpu: metrics.cpuMetrics ? cpu : undefined,
    gpu,
    pinnedMemory: parts.devices.memory.pinned,
  });
  return { name: "Metrics", title: "Metrics Service", endpoint: metrics, handlers: { http } };
}

async function openService(
  plan: ServicePlan,
  pool: BufferPool,
  log: ServerLog,
): Promise<Service> {
  const { name, endpoint } = plan;
  const path = endpoint.address.startsWith("unix:") ? endpoint.address.slice(5) : undefined;
  try {
    const listener = await openWithEngine(plan, {
      address: endpoint.address,
      port: endpoint.port,
      pool,
      reusePort: endpoint.reusePort,
      setListenerNoDelay,
      onError: (reason) => log.error(`${name}: ${describe(reason)}`),
      ...(path === undefined ? {} : { path }),
      ...(plan.limits === undefined ? {} : { limits: plan.limits }),
      ...(plan.tls === undefined ? {} : { tls: await readTls(plan.tls) }),
    });
    const secure = plan.tls === undefined ? "" : "s";
    const scheme = name === "gRPC" ? `grpc${secure}` as const : "http";
    const port = path === undefined ? listener.port : 0;
    const close = (): void => {
      listener.close();
      plan.onClose?.();
    };
    return { name, scheme, address: endpoint.address, port, listener, close };
  } catch (reason) {
    const place = formatEndpoint(endpoint);
    const { message } = ServerError.from(reason);
    const isTaken = reason instanceof Deno.errors.AddrInUse && !place.startsWith("unix:");
    const hint = isTaken ? `; another one is named with --${plan.name.toLowerCase()}-port` : "";
    throw new ServerError(
      "UNAVAILABLE",
      isTaken
        ? `failed to start ${plan.name === "gRPC" ? "GRPC" : plan.name} service: Unavailable - ` +
          `Socket '${place}' already in use${hint}`
        : `failed to start ${plan.title} at ${place}: ${message}`,
    );
  }
}

async function openWithEngine(plan: ServicePlan, options: ListenerOptions): Promise<Listener> {
  if (plan.engine !== "deno") return await openListener(options, plan.handlers);
  const { openDenoServeListener } = await import("../transport/deno_serve_engine.ts");
  return await openDenoServeListener(options, plan.handlers.http);
}

function describe(reason: unknown): string {
  return reason instanceof Error ? reason.stack ?? reason.message : String(reason);
}

async function readTls(files: TlsFiles): Promise<TlsOptions> {
  const [cert, key] = await Promise.all([
    Deno.readTextFile(files.certificateFile),
    Deno.readTextFile(files.keyFile),
  ]);
  return files.mutual
    ? { cert, key, clientCa: await Deno.readTextFile(files.rootFile) }
    : { cert, key };
}

/** Clients choose the length of a path. */
const MAX_LOGGED_PATH = 512;

function toHttpOptions(
  http: HttpServiceOptions,
  { log: serverLog, devices }: ServiceParts,
): HttpOptions {
  const log = serverLog.module("http_server.ts");
  const restricted = http.restrictedApis.flatMap(({ categories, key, value }) =>
    categories.map((category) => [category, { key: key.toLowerCase(), value }] as const)
  );
  return {
    maxInputBytes: http.maxInputBytes,
    restrictedApis: new Map(restricted),
    headerForwardPattern: http.headerForwardPattern,
    describeDevices: () => devices.describe(),
    onRequest: ({ method, target }) => {
      if (!log.isVerbose?.(1)) return;
      log.verbose(1, `HTTP request: ${method} ${target.slice(0, MAX_LOGGED_PATH)}`);
    },
  };
}

function toGrpcOptions(
  grpc: GrpcServiceOptions,
  { clock, log: serverLog }: ServiceParts,
): GrpcOptions {
  const log = serverLog.module("grpc_server.ts");
  return {
    ...DEFAULT_GRPC_OPTIONS,
    setTimer: (delayMs, callback) => clock.setTimer(delayMs, callback),
    maxStreamRequests: Math.min(DEFAULT_GRPC_OPTIONS.maxStreamRequests, grpc.maxStreamRequests),
    responseCompressionLevel: grpc.compressionLevel,
    restrictedProtocols: grpc.restrictedApis,
    headerForwardPattern: grpc.headerForwardPattern,
    onCall: (path) => {
      if (log.isVerbose?.(1)) log.verbose(1, `gRPC call: ${path.slice(0, MAX_LOGGED_PATH)}`);
    },
  };
}

function grpcLimits(grpc: GrpcServiceOptions): Partial<TransportLimits> {
  const orNever = (ms: number): number => ms === 0 ? Infinity : ms;
  return {
    keepaliveTimeMs: orNever(grpc.keepaliveTimeMs),
    keepaliveTimeoutMs: orNever(grpc.keepaliveTimeoutMs),
    permitWithoutCalls: grpc.keepalivePermitWithoutCalls,
    maxPingsWithoutData: grpc.maxPingsWithoutData,
    minRecvPingIntervalMs: grpc.minPingIntervalMs,
    maxPingStrikes: grpc.maxPingStrikes,
    maxConnectionAgeMs: orNever(grpc.maxConnectionAgeMs),
    maxConnectionAgeGraceMs: orNever(grpc.maxConnectionAgeGraceMs),
  };
}
