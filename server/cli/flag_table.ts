/** Headings of `--help`, in order. */
export const FLAG_GROUPS = [
  "Server",
  "Logging",
  "Model repository",
  "HTTP",
  "gRPC",
  "Metrics",
  "Tracing",
  "Backends",
  "Devices",
  "Without effect here",
  "Of later features",
  "Deprecated",
] as const;

/** One heading of `--help`. */
export type FlagGroup = (typeof FLAG_GROUPS)[number];

/** How a value is read: `none` takes no value, `int` has 32 bits, `size` is a larger count. */
export type FlagKind = "none" | "bool" | "int" | "size" | "float" | "text";

/** One row of the flag table. */
export interface FlagSpec {
  readonly name: string;
  readonly group: FlagGroup;
  readonly kind: FlagKind;
  /** What `--help` shows for the value. */
  readonly value?: string;
  /** Default in the form of the command line; absent = none. */
  readonly preset?: string;
  readonly help: string;
  readonly repeated?: boolean;
  /** Smallest and largest allowed number, and the text for anything else. */
  readonly range?: readonly [number, number, string];
  /** Allowed values, compared without case. */
  readonly choices?: readonly string[];
  /** Feature of a later version: only `preset` is accepted, or nothing. */
  readonly later?: string;
  /** Accepted so that command lines written for Triton work; the reason why nothing follows. */
  readonly noEffect?: string;
  /** What to write instead. */
  readonly replacement?: string;
}

const MAX_INT = 2147483647;
const ONE_LOOP = "one event loop serves all connections";
/** What the reference's builds for GPUs have, and tell in their errors. */
const MIN_COMPUTE_CAPABILITY = "6.0";

const SERVER: readonly FlagSpec[] = [
  { name: "help", group: "Server", kind: "none", help: "Print this text" },
  {
    name: "id",
    group: "Server",
    kind: "text",
    value: "NAME",
    preset: "triton",
    help: "Name of the server in its metadata",
  },
  {
    name: "exit-timeout-secs",
    group: "Server",
    kind: "int",
    preset: "30",
    range: [0, MAX_INT, "invalid argument for --exit-timeout-secs. Must not be negative."],
    help: "How long a shutdown waits for requests in flight",
  },
  {
    name: "exit-on-error",
    group: "Server",
    kind: "bool",
    preset: "true",
    help: "Exit when a model or the server cannot be loaded at the start",
  },
  {
    name: "strict-readiness",
    group: "Server",
    kind: "bool",
    preset: "true",
    help: "Readiness covers every model, not only the server",
  },
  {
    name: "allow-client-shm",
    group: "Server",
    kind: "bool",
    preset: "false",
    help: "Let clients register shared memory regions of this machine and use them in requests",
  },
  {
    name: "client-shm-key-prefix",
    group: "Server",
    kind: "text",
    value: "PREFIX",
    repeated: true,
    help: "Take only shared memory whose key begins so, without the slash in front",
  },
  {
    name: "client-shm-copy",
    group: "Server",
    kind: "bool",
    preset: "false",
    help: "Copy inputs out of shared memory, so that clients cannot change them during a request",
  },
  {
    name: "cache-config",
    group: "Server",
    kind: "text",
    value: "NAME,KEY=VALUE",
    repeated: true,
    help: "Response cache for models that enable it: local,size=BYTES",
  },
  {
    name: "response-cache-byte-size",
    group: "Deprecated",
    kind: "size",
    replacement: "--cache-config=local,size=",
    help: "write --cache-config=local,size=BYTES",
  },
  {
    name: "rate-limit",
    group: "Server",
    kind: "text",
    value: "execution_count|off",
    preset: "off",
    choices: ["execution_count", "off"],
    help: "execution_count: instances run only while they hold the resources they ask for",
  },
  {
    name: "rate-limit-resource",
    group: "Server",
    kind: "text",
    value: "NAME:COUNT[:DEVICE]",
    repeated: true,
    help: "How much there is of a resource, on each device or on one; default what is needed",
  },
  {
    name: "log-verbose",
    group: "Logging",
    kind: "text",
    value: "LEVEL",
    preset: "0",
    help: "Verbose level; true = 1",
  },
  { name: "log-info", group: "Logging", kind: "bool", preset: "true", help: "Log information" },
  { name: "log-warning", group: "Logging", kind: "bool", preset: "true", help: "Log warnings" },
  { name: "log-error", group: "Logging", kind: "bool", preset: "true", help: "Log errors" },
  {
    name: "log-format",
    group: "Logging",
    kind: "text",
    value: "default|ISO8601",
    preset: "default",
    choices: ["default", "ISO8601"],
    help: "Format of log lines",
  },
  {
    name: "log-file",
    group: "Logging",
    kind: "text",
    value: "PATH",
    help: "Append log lines to a file instead of the console",
  },
];

const REPOSITORY: readonly FlagSpec[] = [
  {
    name: "model-repository",
    group: "Model repository",
    kind: "text",
    value: "PATH",
    repeated: true,
    help: "Directory with one subdirectory per model",
  },
  {
    name: "model-store",
    group: "Model repository",
    kind: "text",
    value: "PATH",
    repeated: true,
    help: "Older name of --model-repository",
  },
  {
    name: "model-control-mode",
    group: "Model repository",
    kind: "text",
    value: "none|explicit|poll",
    preset: "none",
    choices: ["none", "explicit", "poll"],
    help: "none: load all models at the start; poll: and follow the repository; explicit: only " +
      "those of --load-model",
  },
  {
    name: "load-model",
    group: "Model repository",
    kind: "text",
    value: "NAME",
    repeated: true,
    help: "Model to load at the start in explicit mode; * = all",
  },
  {
    name: "disable-auto-complete-config",
    group: "Model repository",
    kind: "none",
    help: "Take configurations as they are, complete nothing from the model",
  },
  {
    name: "model-config-name",
    group: "Model repository",
    kind: "text",
    value: "NAME",
    help: "Use configs/NAME.pbtxt of a model instead of config.pbtxt",
  },
  {
    name: "repoagent-directory",
    group: "Model repository",
    kind: "text",
    value: "PATH",
    preset: "/opt/tritonserver/repoagents",
    help: "Directory with one subdirectory per repository agent, each with an agent.ts",
  },
  {
    name: "backend-directory",
    group: "Model repository",
    kind: "text",
    value: "PATH",
    preset: "/opt/tritonserver/backends",
    help: "Directory with one subdirectory per backend in Python, each with a model.py",
  },
  {
    name: "model-load-thread-count",
    group: "Model repository",
    kind: "int",
    preset: "4",
    help: "Models loaded at the same time",
  },
  {
    name: "model-load-retry-count",
    group: "Model repository",
    kind: "int",
    preset: "0",
    range: [0, MAX_INT, "invalid argument for --model-load-retry-count. Must not be negative."],
    help: "Further attempts per model version",
  },
  {
    name: "repository-poll-secs",
    group: "Model repository",
    kind: "int",
    preset: "15",
    help: "Interval of repository polling in poll mode",
  },
  {
    name: "model-namespacing",
    group: "Model repository",
    kind: "bool",
    preset: "false",
    help: "Serve models of the same name in several repositories",
  },
  {
    name: "enable-peer-access",
    group: "Model repository",
    kind: "bool",
    preset: "true",
    noEffect: "tensors do not go from one GPU to another",
    help: "CUDA peer access",
  },
];

const HTTP: readonly FlagSpec[] = [
  { name: "allow-http", group: "HTTP", kind: "bool", preset: "true", help: "Serve HTTP" },
  {
    name: "http-address",
    group: "HTTP",
    kind: "text",
    value: "ADDRESS",
    preset: "0.0.0.0",
    help: "Address to listen at; unix:/path for a unix socket",
  },
  { name: "http-port", group: "HTTP", kind: "int", preset: "8000", help: "Port; 0 = any free one" },
  {
    name: "http-header-forward-pattern",
    group: "HTTP",
    kind: "text",
    value: "REGEX",
    help: "Headers that become request parameters",
  },
  {
    name: "http-max-input-size",
    group: "HTTP",
    kind: "size",
    value: "BYTES",
    preset: "67108864",
    range: [
      1,
      Number.MAX_SAFE_INTEGER,
      "Error: --http-max-input-size must be greater than 0.",
    ],
    help: "Largest request body",
  },
  {
    name: "http-restricted-api",
    group: "HTTP",
    kind: "text",
    value: "APIS:KEY=VALUE",
    repeated: true,
    help: "Calls that need header KEY with VALUE, such as inference,health:key=secret",
  },
  {
    name: "http-engine",
    group: "HTTP",
    kind: "text",
    value: "native|deno",
    preset: "native",
    choices: ["native", "deno"],
    help: "native: own HTTP/1.1 and HTTP/2; deno: Deno.serve",
  },
  {
    name: "http-thread-count",
    group: "HTTP",
    kind: "int",
    preset: "8",
    noEffect: ONE_LOOP,
    help: "Threads for HTTP",
  },
  {
    name: "reuse-http-port",
    group: "HTTP",
    kind: "bool",
    preset: "false",
    help: "Several servers may listen at the port",
  },
];

const GRPC: readonly FlagSpec[] = [
  { name: "allow-grpc", group: "gRPC", kind: "bool", preset: "true", help: "Serve gRPC" },
  {
    name: "grpc-address",
    group: "gRPC",
    kind: "text",
    value: "ADDRESS",
    preset: "0.0.0.0",
    help: "Address to listen at; unix:/path for a unix socket",
  },
  { name: "grpc-port", group: "gRPC", kind: "int", preset: "8001", help: "Port; 0 = any free one" },
  {
    name: "grpc-header-forward-pattern",
    group: "gRPC",
    kind: "text",
    value: "REGEX",
    help: "Metadata that becomes request parameters",
  },
  {
    name: "grpc-restricted-protocol",
    group: "gRPC",
    kind: "text",
    value: "APIS:KEY=VALUE",
    repeated: true,
    help: "Calls that need metadata triton-grpc-protocol-KEY with VALUE",
  },
  {
    name: "grpc-infer-response-compression-level",
    group: "gRPC",
    kind: "text",
    value: "none|low|medium|high",
    preset: "none",
    choices: ["none", "low", "medium", "high"],
    help: "Compression of responses to clients that accept it",
  },
  { name: "grpc-use-ssl", group: "gRPC", kind: "bool", preset: "false", help: "TLS for gRPC" },
  {
    name: "grpc-use-ssl-mutual",
    group: "gRPC",
    kind: "bool",
    preset: "false",
    help: "TLS that asks clients for a certificate",
  },
  {
    name: "grpc-server-cert",
    group: "gRPC",
    kind: "text",
    value: "PATH",
    help: "Certificate chain of the server, PEM",
  },
  {
    name: "grpc-server-key",
    group: "gRPC",
    kind: "text",
    value: "PATH",
    help: "Private key of the server, PEM",
  },
  {
    name: "grpc-root-cert",
    group: "gRPC",
    kind: "text",
    value: "PATH",
    help: "Authorities that sign client certificates, PEM",
  },
  {
    name: "grpc-keepalive-time",
    group: "gRPC",
    kind: "int",
    value: "MS",
    preset: "7200000",
    help: "Silence after which a client is pinged",
  },
  {
    name: "grpc-keepalive-timeout",
    group: "gRPC",
    kind: "int",
    value: "MS",
    preset: "20000",
    help: "Wait for the answer to a ping",
  },
  {
    name: "grpc-keepalive-permit-without-calls",
    group: "gRPC",
    kind: "bool",
    preset: "false",
    help: "Ping clients that have no call, too",
  },
  {
    name: "grpc-http2-max-pings-without-data",
    group: "gRPC",
    kind: "int",
    preset: "2",
    help: "Pings sent while no data flows; 0 = no limit",
  },
  {
    name: "grpc-http2-min-recv-ping-interval-without-data",
    group: "gRPC",
    kind: "int",
    value: "MS",
    preset: "300000",
    help: "Pings of an idle client that come faster are strikes",
  },
  {
    name: "grpc-http2-max-ping-strikes",
    group: "gRPC",
    kind: "int",
    preset: "2",
    help: "Strikes before a connection is closed; 0 = no limit",
  },
  {
    name: "grpc-max-connection-age",
    group: "gRPC",
    kind: "int",
    value: "MS",
    help: "Connections end after this time",
  },
  {
    name: "grpc-max-connection-age-grace",
    group: "gRPC",
    kind: "int",
    value: "MS",
    help: "Time for calls in flight after that",
  },
  {
    name: "grpc-infer-thread-count",
    group: "gRPC",
    kind: "int",
    preset: "2",
    range: [
      2,
      128,
      "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.",
    ],
    noEffect: ONE_LOOP,
    help: "Threads for inference calls",
  },
  {
    name: "grpc-infer-allocation-pool-size",
    group: "gRPC",
    kind: "int",
    preset: "8",
    noEffect: "buffers are pooled by size",
    help: "Call states kept for reuse",
  },
  {
    name: "grpc-max-response-pool-size",
    group: "gRPC",
    kind: "int",
    preset: "2147483647",
    range: [1, MAX_INT, "Error: --grpc-max-response-pool-size must be greater than 0."],
    noEffect: "flow control bounds what waits to be sent",
    help: "Responses kept per stream",
  },
  {
    name: "reuse-grpc-port",
    group: "gRPC",
    kind: "bool",
    preset: "false",
    help: "Several servers may listen at the port",
  },
];

const REST: readonly FlagSpec[] = [
  { name: "allow-metrics", group: "Metrics", kind: "bool", preset: "true", help: "Serve metrics" },
  {
    name: "metrics-address",
    group: "Metrics",
    kind: "text",
    value: "ADDRESS",
    help: "Address to listen at (default: that of --http-address)",
  },
  {
    name: "metrics-port",
    group: "Metrics",
    kind: "int",
    preset: "8002",
    help: "Port; 0 = any free one",
  },
  {
    name: "metrics-config",
    group: "Metrics",
    kind: "text",
    value: "KEY=VALUE",
    repeated: true,
    help: "counter_latencies, histogram_latencies, summary_latencies, summary_quantiles",
  },
  {
    name: "allow-gpu-metrics",
    group: "Metrics",
    kind: "bool",
    preset: "true",
    help: "Metrics of NVIDIA GPUs",
  },
  {
    name: "allow-cpu-metrics",
    group: "Metrics",
    kind: "bool",
    preset: "true",
    help: "Metrics of CPU and memory",
  },
  {
    name: "metrics-interval-ms",
    group: "Metrics",
    kind: "float",
    preset: "2000",
    help: "Interval at which CPU, memory and GPUs are read",
  },
  {
    name: "trace-config",
    group: "Tracing",
    kind: "text",
    value: "[MODE,]KEY=VALUE",
    repeated: true,
    help: "mode, level, rate, count; triton,file and triton,log-frequency; opentelemetry,url, " +
      "opentelemetry,resource and opentelemetry,bsp_…",
  },
  {
    name: "backend-config",
    group: "Backends",
    kind: "text",
    value: "[BACKEND,]KEY=VALUE",
    repeated: true,
    help: "Setting of one backend or of all",
  },
];

const DEVICES: readonly FlagSpec[] = [
  {
    name: "min-supported-compute-capability",
    group: "Devices",
    kind: "float",
    value: "VERSION",
    preset: MIN_COMPUTE_CAPABILITY,
    help: "NVIDIA GPUs with less are not used",
  },
  {
    name: "model-load-gpu-limit",
    group: "Devices",
    kind: "text",
    value: "GPU:FRACTION",
    repeated: true,
    help: "No further model is loaded on a GPU once that much of its memory is in use",
  },
  {
    name: "pinned-memory-pool-byte-size",
    group: "Devices",
    kind: "size",
    value: "BYTES",
    preset: "268435456",
    range: [
      0,
      Number.MAX_SAFE_INTEGER,
      "Error: --pinned-memory-pool-byte-size must not be negative.",
    ],
    help: "Host memory that GPUs copy from and to directly, shared by all models; 0 = none",
  },
  {
    name: "cuda-memory-pool-byte-size",
    group: "Devices",
    kind: "text",
    value: "GPU:BYTES",
    repeated: true,
    help: "Memory of a GPU that models share for tensors on their way (default: 67108864 each)",
  },
];

/** The flags of cli.md §2 that this version obeys: Triton's names, and a few of our own. */
export const SERVED_FLAGS: readonly FlagSpec[] = [
  ...SERVER,
  ...REPOSITORY,
  ...HTTP,
  ...GRPC,
  ...REST,
  ...DEVICES,
];
