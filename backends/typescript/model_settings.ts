import { pathToFileURL } from "node:url";
import { getHeapStatistics } from "node:v8";
import { ServerError } from "../../proto/status.ts";
import type { BackendSettings, ModelSource } from "../backend.ts";
import { readCountParameter, readNumberParameter } from "../model_parameters.ts";

/** Kinds of permissions, as Deno names them. */
const PERMISSIONS = ["read", "write", "net", "env", "run", "ffi", "sys", "import"] as const;
type Permission = typeof PERMISSIONS[number];

/** What a Worker may do; "inherit" = as much as the server. */
export type WorkerPermissions = Readonly<Record<Permission, boolean | string[]>> | "inherit";

/** What one model version needs to run. */
export interface ModelSettings {
  /** URL of the model's file. */
  readonly file: string;
  readonly permissions: WorkerPermissions;
  /** Streams of one instance that run at one time. */
  readonly maxStreams: number;
  /** Loading takes no longer; 0 = no limit. */
  readonly initializeTimeoutMs: number;
  /** A batch that takes longer ends its Worker; 0 = no limit. */
  readonly executeTimeoutMs: number;
  /** Memory by which the process may grow during one batch before its Worker is ended; 0 = no limit. */
  readonly memoryLimitBytes: number;
  readonly restart: "on-failure" | "never";
}

const DEFAULT_FILE = "model.ts";
const FILE_NAME = /\.(ts|mts|js|mjs)$/;
const MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY";
const DEFAULT_MAX_STREAMS = 64;
/** Of the heap that V8 gives a Worker: when that is full the whole process ends. */
const HEAP_SHARE = 0.7;
const DEFAULT_INITIALIZE_SECONDS = 600;

/** Reads the settings of a model. @throws ServerError */
export async function readModelSettings(
  source: ModelSource,
  settings: BackendSettings,
): Promise<ModelSettings> {
  const { config } = source;
  const seconds = readNumberParameter(
    config,
    "execute_timeout_seconds",
    numberSetting(settings, "execute-timeout-seconds", 0),
  );
  const heapMib = Math.floor(getHeapStatistics().heap_size_limit * HEAP_SHARE / 2 ** 20);
  const memory = numberSetting(settings, "memory-limit-mib", heapMib);
  return {
    file: await findModelFile(source),
    permissions: readPermissions(source, settings),
    maxStreams: Math.max(readCountParameter(config, "max_streams", DEFAULT_MAX_STREAMS), 1),
    initializeTimeoutMs: 1000 *
      readNumberParameter(config, "initialize_timeout_seconds", DEFAULT_INITIALIZE_SECONDS),
    executeTimeoutMs: seconds * 1000,
    memoryLimitBytes: readNumberParameter(config, "memory_limit_mib", memory) * 2 ** 20,
    restart: choiceSetting(settings, "restart", ["on-failure", "never"]),
  };
}

async function findModelFile({ config, versionDirectory }: ModelSource): Promise<string> {
  const name = config.defaultModelFilename || DEFAULT_FILE;
  if (!FILE_NAME.test(name)) {
    throw new ServerError(
      "INVALID_ARG",
      `model file of a TypeScript model must end in .ts, .mts, .js or .mjs, got ` +
        `default_model_filename: '${name}'`,
    );
  }
  const path = `${versionDirectory}/${name}`;
  try {
    if ((await Deno.stat(path)).isFile) return pathToFileURL(path).href;
  } catch (reason) {
    if (!(reason instanceof Deno.errors.NotFound)) throw ServerError.from(reason);
  }
  throw new ServerError("NOT_FOUND", `TypeScript model file not found in '${path}'`);
}

/** What the model declares in its parameters `allow_read` and so on; its own folder may be read always. */
function readPermissions(source: ModelSource, settings: BackendSettings): WorkerPermissions {
  const mode = choiceSetting(settings, "permissions", ["declared", "none", "inherit"]);
  if (mode === "inherit") return "inherit";
  const permissions = Object.fromEntries(
    PERMISSIONS.map((name) => [name, readPermission(source, name, mode)]),
  ) as Record<Permission, boolean | string[]>;
  const { read } = permissions;
  if (read !== true) permissions.read = [source.modelDirectory, ...read === false ? [] : read];
  return permissions;
}

function readPermission(
  { config, modelDirectory }: ModelSource,
  name: Permission,
  mode: "declared" | "none",
): boolean | string[] {
  const key = `allow_${name}`;
  const text = config.parameters[key]?.stringValue.trim() ?? "";
  if (text === "" || text === "false") return false;
  if (mode === "none") {
    throw new ServerError(
      "INVALID_ARG",
      `model '${config.name}' declares the permission '${key}', but this server gives none ` +
        `(--backend-config=typescript,permissions=none)`,
    );
  }
  if (text === "true" || text === "*") return true;
  return text.split(",").map((item) => item.trim().replace(MODEL_DIRECTORY, () => modelDirectory))
    .filter((item) => item !== "");
}

function numberSetting(settings: BackendSettings, key: string, fallback: number): number {
  const text = settings.get(key);
  if (text === undefined) return fallback;
  const value = Number(text);
  if (text.trim() !== "" && Number.isFinite(value) && value >= 0) return value;
  throw new ServerError(
    "INVALID_ARG",
    `--backend-config=typescript,${key} must be a number from 0 on, got '${text}'`,
  );
}

function choiceSetting<Choice extends string>(
  settings: BackendSettings,
  key: string,
  choices: readonly [Choice, ...Choice[]],
): Choice {
  const text = settings.get(key) ?? choices[0];
  const choice = choices.find((each) => each === text);
  if (choice !== undefined) return choice;
  throw new ServerError(
    "INVALID_ARG",
    `--backend-config=typescript,${key} must be ${choices.join(" or ")}, got '${text}'`,
  );
}
