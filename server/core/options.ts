import type { RateLimitResource } from "./scheduler/resource_table.ts";

/** Control modes of management.md §1. */
export type ModelControlMode = "none" | "poll" | "explicit";

/** What the serving engine is started with; flags of cli.md §2 with Triton's defaults. */
export interface ServerOptions {
  /** `--id`. */
  readonly id: string;
  /** `--model-repository`, absolute paths, sorted, without repetition. */
  readonly modelRepositories: readonly string[];
  readonly modelControlMode: ModelControlMode;
  /** `--repository-poll-secs`, POLL mode only. */
  readonly repositoryPollSecs: number;
  /** `--model-namespacing`: models of one name in several repositories. */
  readonly modelNamespacing: boolean;
  /** `--load-model`, EXPLICIT mode only; `["*"]` = all. */
  readonly loadModels: readonly string[];
  readonly exitOnError: boolean;
  readonly strictReadiness: boolean;
  /** False with `--disable-auto-complete-config`. */
  readonly autoCompleteConfig: boolean;
  /** `--model-config-name`; "" = none. */
  readonly modelConfigName: string;
  /** `--repoagent-directory`, absolute. */
  readonly repositoryAgentDirectory: string;
  /** `--backend-directory`, absolute: its subfolders are those of backends in Python. */
  readonly backendDirectory: string;
  readonly modelLoadThreadCount: number;
  readonly modelLoadRetryCount: number;
  readonly exitTimeoutSecs: number;
  /** `--backend-config`: backend name ("" = global) → key → value. */
  readonly backendConfig: ReadonlyMap<string, ReadonlyMap<string, string>>;
  /** `--rate-limit`. */
  readonly rateLimit: "off" | "execution_count";
  /** `--rate-limit-resource`. */
  readonly rateLimitResources: readonly RateLimitResource[];
  /** `--cache-config`: cache name → key → value; empty = no response cache. */
  readonly cacheConfig: ReadonlyMap<string, ReadonlyMap<string, string>>;
  /** `--cache-directory`; only told in errors, since the one cache is part of the server. */
  readonly cacheDirectory: string;
  /** `--allow-client-shm`. */
  readonly allowClientSharedMemory: boolean;
  /** `--client-shm-key-prefix`: keys of regions must begin with one of these; empty = any. */
  readonly sharedMemoryKeyPrefixes: readonly string[];
  /** `--model-load-gpu-limit`: no instance is made on a GPU with more than this fraction of its memory in use. */
  readonly modelLoadGpuLimits: ReadonlyMap<number, number>;
}

/** The defaults of cli.md §2, without a repository. */
export const DEFAULT_SERVER_OPTIONS: ServerOptions = {
  id: "triton",
  modelRepositories: [],
  modelControlMode: "none",
  repositoryPollSecs: 15,
  modelNamespacing: false,
  loadModels: [],
  exitOnError: true,
  strictReadiness: true,
  autoCompleteConfig: true,
  modelConfigName: "",
  repositoryAgentDirectory: "/opt/tritonserver/repoagents",
  backendDirectory: "/opt/tritonserver/backends",
  modelLoadThreadCount: 4,
  modelLoadRetryCount: 0,
  exitTimeoutSecs: 30,
  backendConfig: new Map(),
  cacheConfig: new Map(),
  cacheDirectory: "/opt/tritonserver/caches",
  rateLimit: "off",
  rateLimitResources: [],
  allowClientSharedMemory: false,
  sharedMemoryKeyPrefixes: [],
  modelLoadGpuLimits: new Map(),
};
