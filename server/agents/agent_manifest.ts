import { ServerError } from "../../proto/status.ts";

/** What the one who runs the server allows an agent, in the `agent.json` beside its code. */
export interface AgentManifest {
  /** Beyond its own folder, that of the model, and writing the new one. */
  readonly permissions: Readonly<Partial<Record<PermissionName, readonly string[]>>>;
  /** Bound of each call. */
  readonly timeoutMs: number;
  /** Bound of the JavaScript heap, MiB. */
  readonly memoryMib: number;
}

/** Permissions that can be given; each as a list, never as a whole. */
export const PERMISSION_NAMES = ["read", "write", "net", "env", "sys", "run"] as const;

/** One of {@linkcode PERMISSION_NAMES}. */
export type PermissionName = typeof PERMISSION_NAMES[number];

const DEFAULTS = { "timeout_seconds": 60, "memory_mib": 512 };
const RANGES = { "timeout_seconds": [1, 3600], "memory_mib": [64, 65_536] } as const;
const ITEMS_MAX = 100;

/** Reads the text of an `agent.json`; "" = nothing is allowed. @throws ServerError INVALID_ARG that says what is wrong. */
export function parseManifest(text: string): AgentManifest {
  const manifest = text === "" ? {} : parseObject(text);
  const known = ["permissions", ...Object.keys(DEFAULTS)];
  const unknown = Object.keys(manifest).find((key) => !known.includes(key));
  if (unknown !== undefined) throw wrong(unknown, `is unknown; expected ${known.join(", ")}`);
  return {
    permissions: readPermissions(manifest.permissions ?? {}),
    timeoutMs: readNumber(manifest, "timeout_seconds") * 1000,
    memoryMib: readNumber(manifest, "memory_mib"),
  };
}

function parseObject(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (reason) {
    throw wrong("", `is no JSON: ${ServerError.from(reason).message}`);
  }
  if (isObject(value)) return value;
  throw wrong("", "must hold an object");
}

function readPermissions(value: unknown): AgentManifest["permissions"] {
  if (!isObject(value)) throw wrong("permissions", "must be an object");
  const permissions: Partial<Record<PermissionName, readonly string[]>> = {};
  for (const [name, items] of Object.entries(value)) {
    const known = PERMISSION_NAMES.find((each) => each === name);
    if (known === undefined) {
      throw wrong(`permissions.${name}`, `is unknown; expected ${PERMISSION_NAMES.join(", ")}`);
    }
    const isList = Array.isArray(items) && items.length <= ITEMS_MAX &&
      items.every((item) => typeof item === "string" && item !== "" && !item.includes("\0"));
    if (!isList) throw wrong(`permissions.${name}`, `must be a list of at most ${ITEMS_MAX} texts`);
    permissions[known] = items;
  }
  return permissions;
}

function readNumber(manifest: Record<string, unknown>, name: keyof typeof DEFAULTS): number {
  const value = manifest[name] ?? DEFAULTS[name];
  const [min, max] = RANGES[name];
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) {
    return value;
  }
  throw wrong(name, `must be a whole number from ${min} to ${max}`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function wrong(field: string, what: string): ServerError {
  return new ServerError("INVALID_ARG", field === "" ? what : `'${field.slice(0, 100)}' ${what}`);
}
