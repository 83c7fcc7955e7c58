import { resolve } from "node:path";
import { ServerError } from "../../proto/status.ts";
import {
  DEFAULT_SERVER_OPTIONS,
  type ModelControlMode,
  type ServerOptions,
} from "../core/options.ts";
import type { TraceOptions } from "../core/options_trace.ts";
import { type DeviceOptions, readDeviceOptions, readGpuLimits } from "./device_flags.ts";
import type { ParsedFlags } from "./flags.ts";
import {
  parseBackendSetting,
  parseCacheSetting,
  parseRateLimitResource,
  parseSettingValue,
  parseVerboseLevel,
} from "./flag_values.ts";
import { type MetricsSettings, readMetricsSettings } from "./metrics_settings.ts";
import { parseRestrictedApis, type RestrictedApi } from "./restricted_apis.ts";
import { readTraceOptions } from "./trace_flags.ts";

/** Where a service listens: an address with a port (0 = any free one), or `unix:/path`. */
export interface Endpoint {
  readonly address: string;
  readonly port: number;
  readonly reusePort: boolean;
}

/** Settings of the HTTP service. */
export interface HttpServiceOptions extends Endpoint {
  readonly engine: "native" | "deno";
  readonly maxInputBytes: number;
  readonly headerForwardPattern: RegExp | undefined;
  readonly restrictedApis: readonly RestrictedApi[];
}

/** TLS files of the gRPC service. */
export interface TlsFiles {
  readonly certificateFile: string;
  readonly keyFile: string;
  readonly rootFile: string;
  /** Clients must show a certificate that one of the roots signed. */
  readonly mutual: boolean;
}

/** Settings of the gRPC service; times in ms, 0 = never. */
export interface GrpcServiceOptions extends Endpoint {
  readonly headerForwardPattern: RegExp | undefined;
  readonly restrictedApis: readonly RestrictedApi[];
  readonly compressionLevel: "none" | "low" | "medium" | "high";
  readonly tls: TlsFiles | undefined;
  readonly keepaliveTimeMs: number;
  readonly keepaliveTimeoutMs: number;
  readonly keepalivePermitWithoutCalls: boolean;
  readonly maxPingsWithoutData: number;
  readonly minPingIntervalMs: number;
  readonly maxPingStrikes: number;
  readonly maxConnectionAgeMs: number;
  readonly maxConnectionAgeGraceMs: number;
  /** Requests of one stream whose answers are not written yet. */
  readonly maxStreamRequests: number;
}

/** Settings of the metrics service. */
export interface MetricsServiceOptions extends Endpoint {
  readonly settings: MetricsSettings;
  readonly cpuMetrics: boolean;
  readonly gpuMetrics: boolean;
  readonly intervalMs: number;
}

/** Settings of the log. */
export interface LogOptions {
  readonly verbose: number;
  readonly info: boolean;
  readonly warning: boolean;
  readonly error: boolean;
  readonly format: "default" | "ISO8601";
  /** "" = console. */
  readonly file: string;
}

/** All that a server process is started with. */
export interface ServeOptions {
  readonly server: ServerOptions;
  readonly http: HttpServiceOptions | undefined;
  readonly grpc: GrpcServiceOptions | undefined;
  readonly metrics: MetricsServiceOptions | undefined;
  readonly log: LogOptions;
  readonly trace: TraceOptions;
  readonly devices: DeviceOptions;
  /** `--client-shm-copy`. */
  readonly copySharedMemory: boolean;
}

/**
 * Turns a command line into options, with the checks of cli.md that look at several flags.
 * @throws ServerError INVALID_ARG with the text to print.
 */
export function readServeOptions(flags: ParsedFlags): ServeOptions {
  const options: ServeOptions = {
    server: readServerOptions(flags),
    http: flags.bool("allow-http") ? readHttpOptions(flags) : undefined,
    grpc: flags.bool("allow-grpc") ? readGrpcOptions(flags) : undefined,
    metrics: flags.bool("allow-metrics") ? readMetricsOptions(flags) : undefined,
    log: readLogOptions(flags),
    trace: readTraceOptions(flags),
    devices: readDeviceOptions(flags),
    copySharedMemory: flags.bool("client-shm-copy"),
  };
  checkEndpoints(options);
  return options;
}

function usage(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}

function readServerOptions(flags: ParsedFlags): ServerOptions {
  const mode = flags.text("model-control-mode") as ModelControlMode;
  if (flags.given("load-model") && mode !== "explicit") {
    throw usage(
      "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.",
    );
  }
  if (flags.given("model-config-name") && flags.text("model-config-name") === "") {
    throw usage("Error: empty argument for --model-config-name");
  }
  const paths = [...flags.list("model-repository"), ...flags.list("model-store")];
  const strict = flags.bool("disable-auto-complete-config") || flags.bool("strict-model-config");
  return {
    ...DEFAULT_SERVER_OPTIONS,
    id: flags.text("id"),
    modelRepositories: [...new Set(paths.map(repositoryPath))].sort(),
    modelControlMode: mode,
    repositoryPollSecs: Math.max(1, flags.number("repository-poll-secs")),
    modelNamespacing: flags.bool("model-namespacing"),
    loadModels: [...new Set(flags.list("load-model"))].sort(),
    exitOnError: flags.bool("exit-on-error"),
    strictReadiness: flags.bool("strict-readiness"),
    autoCompleteConfig: !strict,
    modelConfigName: flags.text("model-config-name"),
    repositoryAgentDirectory: resolve(flags.text("repoagent-directory")),
    backendDirectory: resolve(flags.text("backend-directory")),
    modelLoadThreadCount: Math.max(1, flags.number("model-load-thread-count")),
    modelLoadRetryCount: flags.number("model-load-retry-count"),
    exitTimeoutSecs: flags.number("exit-timeout-secs"),
    backendConfig: readBackendConfig(flags.list("backend-config")),
    rateLimit: flags.text("rate-limit") as ServerOptions["rateLimit"],
    rateLimitResources: readRateLimitResources(flags.list("rate-limit-resource")),
    cacheConfig: readCacheConfig(flags),
    cacheDirectory: flags.text("cache-directory") || DEFAULT_SERVER_OPTIONS.cacheDirectory,
    allowClientSharedMemory: flags.bool("allow-client-shm"),
    sharedMemoryKeyPrefixes: flags.list("client-shm-key-prefix"),
    modelLoadGpuLimits: readGpuLimits(flags),
  };
}

/** An absolute path; the address of a cloud storage stays as it is, to be refused as one. */
function repositoryPath(path: string): string {
  return /^[a-z0-9]+:\/\//.test(path) ? path : resolve(path);
}

function readBackendConfig(texts: readonly string[]): Map<string, Map<string, string>> {
  const result = new Map<string, Map<string, string>>();
  for (const text of texts) {
    const { backend, key, value } = parseBackendSetting(text);
    const settings = result.get(backend) ?? new Map<string, string>();
    result.set(backend, settings.set(key, value));
  }
  return result;
}

function readRateLimitResources(texts: readonly string[]): ServerOptions["rateLimitResources"] {
  try {
    return texts.map(parseRateLimitResource);
  } catch (reason) {
    throw usage(`Bad option: "--rate-limit-resource".\n${ServerError.from(reason).message}`);
  }
}

function readCacheConfig(flags: ParsedFlags): Map<string, Map<string, string>> {
  const result = new Map<string, Map<string, string>>();
  const oldSize = flags.text("response-cache-byte-size");
  if (flags.given("response-cache-byte-size")) {
    if (flags.given("cache-config")) {
      throw usage(
        "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. " +
          "Please provide one or the other.",
      );
    }
    return result.set("local", new Map([["size", oldSize]]));
  }
  for (const text of flags.list("cache-config")) {
    const { cache, key, value } = parseCacheSetting(text);
    const settings = result.get(cache) ?? new Map<string, string>();
    result.set(cache, settings.set(key, value));
  }
  return result;
}

function readEndpoint(flags: ParsedFlags, service: "http" | "grpc" | "metrics"): Endpoint {
  const port = flags.number(`${service}-port`);
  if (port < 0 || port > 65535) {
    throw usage(
      `Bad option: "--${service}-port".\ninvalid port ${port}; expected 0 to 65535`,
    );
  }
  const reusePort = service !== "metrics" && flags.bool(`reuse-${service}-port`);
  return { address: flags.text(`${service}-address`), port, reusePort };
}

function readPattern(flags: ParsedFlags, name: string): RegExp | undefined {
  const pattern = flags.text(name);
  if (pattern === "") return undefined;
  try {
    return headerPattern(pattern);
  } catch (reason) {
    throw usage(`Bad option: "--${name}".\n${ServerError.from(reason).message}`);
  }
}

/** Flags in front, `(?-i)name`, are what patterns of the reference (RE2) may have and RegExp has not. */
function headerPattern(pattern: string): RegExp {
  const [flags = "", on = "", off = ""] = /^\(\?([ims]*)(?:-([ims]+))?\)/.exec(pattern) ?? [];
  const letters = new Set(`i${on}`);
  for (const letter of off) letters.delete(letter);
  return new RegExp(pattern.slice(flags.length), [...letters].join(""));
}

function readHttpOptions(flags: ParsedFlags): HttpServiceOptions {
  return {
    ...readEndpoint(flags, "http"),
    engine: flags.text("http-engine") as HttpServiceOptions["engine"],
    maxInputBytes: flags.number("http-max-input-size"),
    headerForwardPattern: readPattern(flags, "http-header-forward-pattern"),
    restrictedApis: parseRestrictedApis("api", flags.list("http-restricted-api")),
  };
}

function readGrpcOptions(flags: ParsedFlags): GrpcServiceOptions {
  return {
    ...readEndpoint(flags, "grpc"),
    headerForwardPattern: readPattern(flags, "grpc-header-forward-pattern"),
    restrictedApis: parseRestrictedApis("protocol", flags.list("grpc-restricted-protocol")),
    compressionLevel: flags.text(
      "grpc-infer-response-compression-level",
    ) as GrpcServiceOptions["compressionLevel"],
    tls: readTlsFiles(flags),
    keepaliveTimeMs: flags.number("grpc-keepalive-time"),
    keepaliveTimeoutMs: flags.number("grpc-keepalive-timeout"),
    keepalivePermitWithoutCalls: flags.bool("grpc-keepalive-permit-without-calls"),
    maxPingsWithoutData: flags.number("grpc-http2-max-pings-without-data"),
    minPingIntervalMs: flags.number("grpc-http2-min-recv-ping-interval-without-data"),
    maxPingStrikes: flags.number("grpc-http2-max-ping-strikes"),
    maxConnectionAgeMs: flags.number("grpc-max-connection-age"),
    maxConnectionAgeGraceMs: flags.number("grpc-max-connection-age-grace"),
    maxStreamRequests: flags.number("grpc-max-response-pool-size"),
  };
}

function readTlsFiles(flags: ParsedFlags): TlsFiles | undefined {
  const mutual = flags.bool("grpc-use-ssl-mutual");
  if (!mutual && !flags.bool("grpc-use-ssl")) return undefined;
  const files = {
    certificateFile: flags.text("grpc-server-cert"),
    keyFile: flags.text("grpc-server-key"),
    rootFile: flags.text("grpc-root-cert"),
  };
  if (files.certificateFile === "" || files.keyFile === "") {
    throw usage("Error: --grpc-use-ssl needs --grpc-server-cert and --grpc-server-key");
  }
  if (mutual && files.rootFile === "") {
    throw usage("Error: --grpc-use-ssl-mutual needs --grpc-root-cert");
  }
  return { ...files, mutual };
}

function readMetricsOptions(flags: ParsedFlags): MetricsServiceOptions {
  const settings = new Map<string, string>();
  for (const text of flags.list("metrics-config")) {
    const { key, value } = parseSettingValue("metrics-config", text);
    settings.set(key, value);
  }
  const endpoint = readEndpoint(flags, "metrics");
  return {
    ...endpoint,
    address: flags.given("metrics-address") ? endpoint.address : flags.text("http-address"),
    settings: readMetricsSettings(settings),
    cpuMetrics: flags.bool("allow-cpu-metrics"),
    gpuMetrics: flags.bool("allow-gpu-metrics"),
    intervalMs: flags.number("metrics-interval-ms"),
  };
}

function readLogOptions(flags: ParsedFlags): LogOptions {
  return {
    verbose: parseVerboseLevel(flags.text("log-verbose")),
    info: flags.bool("log-info"),
    warning: flags.bool("log-warning"),
    error: flags.bool("log-error"),
    format: flags.text("log-format") as LogOptions["format"],
    file: flags.text("log-file"),
  };
}

function checkEndpoints(options: ServeOptions): void {
  const services: readonly (readonly [string, Endpoint | undefined])[] = [
    ["HTTP", options.http],
    ["GRPC", options.grpc],
    ["metrics", options.metrics],
  ];
  const seen = new Map<string, string>();
  for (const [name, endpoint] of services) {
    if (endpoint === undefined || isAnyPort(endpoint)) continue;
    const place = formatEndpoint(endpoint);
    const other = seen.get(place);
    if (other !== undefined) {
      throw usage(
        `The server cannot listen to ${other} requests and ${name} requests at the same address ` +
          `and port ${place}`,
      );
    }
    seen.set(place, name);
  }
}

function isAnyPort(endpoint: Endpoint): boolean {
  return endpoint.port === 0 && !endpoint.address.startsWith("unix:");
}

/** `address:port`, or the unix socket's path with its prefix. */
export function formatEndpoint(endpoint: { address: string; port: number }): string {
  const { address, port } = endpoint;
  if (address.startsWith("unix:")) return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
