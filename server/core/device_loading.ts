import type { Backend, DeviceClass, Devices, InstancePlacement } from "../../backends/backend.ts";
import { DEVICE_CLASS_NAMES } from "../../backends/backend.ts";
import { ServerError, type StatusCode } from "../../proto/status.ts";
import type { ConfigSource } from "./config_complete.ts";
import type { KindChoice } from "./instance_kinds.ts";
import type { Log } from "./log.ts";
import type { VersionStatistics } from "./statistics.ts";

/** One try to load a version. */
export interface LoadAttempt {
  /** Families of devices on which it failed before, with the reason. */
  readonly failed: ReadonlyMap<DeviceClass, string>;
  /** Where its groups go, once that is decided. */
  choice: KindChoice | undefined;
}

/** Completes and checks the configuration; decides where its groups go. */
export type CompleteConfig = (
  source: ConfigSource,
  backend: Backend,
  attempt?: {
    readonly failed: ReadonlyMap<DeviceClass, string>;
    readonly onChosen: (choice: KindChoice) => void;
  },
) => Promise<KindChoice | undefined>;

/** Faults of the model or of its configuration: another device would not help. */
const FAULTS_OF_THE_MODEL: ReadonlySet<StatusCode> = new Set<StatusCode>([
  "INVALID_ARG",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "CANCELLED",
]);

/**
 * Loads a version, and when that fails on a device that the server chose, or that may be replaced, on the next one.
 * @throws ServerError of the last try.
 */
export async function loadOnDevices<Loaded>(
  name: string,
  log: Log,
  load: (attempt: LoadAttempt) => Promise<Loaded>,
): Promise<Loaded> {
  const failed = new Map<DeviceClass, string>();
  while (true) {
    const attempt: LoadAttempt = { failed, choice: undefined };
    try {
      return await load(attempt);
    } catch (reason) {
      const error = ServerError.from(reason);
      const device = attempt.choice?.replaceable;
      // Each family is given up once, so this ends.
      if (device === undefined || failed.has(device) || FAULTS_OF_THE_MODEL.has(error.code)) {
        throw reason;
      }
      failed.set(device, error.message);
      log.warning(
        `model '${name}' could not be loaded on ${DEVICE_CLASS_NAMES[device]}, the next kind is ` +
          `tried: ${error.message}`,
      );
    }
  }
}

/** Completes the configuration for one try, and tells the log where the groups go. @throws ServerError */
export async function completeForAttempt(
  source: ConfigSource,
  backend: Backend,
  { attempt, completeConfig, log }: {
    readonly attempt: LoadAttempt;
    readonly completeConfig: CompleteConfig;
    readonly log: Log;
  },
): Promise<void> {
  const choice = attempt.choice = await completeConfig(source, backend, {
    failed: attempt.failed,
    onChosen: (chosen) => attempt.choice = chosen,
  });
  if (choice !== undefined) tellChoice(choice, log);
}

/** Tells the log where groups go that left it open, or did not get what they asked for. */
export function tellChoice({ notes, fallbacks }: KindChoice, log: Log): void {
  for (const note of notes) log.info(note);
  for (const fallback of fallbacks) log.warning(fallback);
}

/** Groups of a loaded version that run on a lesser kind than they asked for, or than was tried first. */
export function countFallbacks({ failed, choice }: LoadAttempt): number {
  return failed.size + (choice?.fallbacks.length ?? 0);
}

/** What bounds the use of GPUs. */
export interface GpuLimitParts {
  readonly devices?: Devices | undefined;
  /** `--model-load-gpu-limit` by GPU. */
  readonly modelLoadGpuLimits?: ReadonlyMap<number, number> | undefined;
}

/** Has what an instance on a GPU of NVIDIA's does counted with the GPU's UUID, where that is known. */
export async function countOnGpu(
  statistics: VersionStatistics,
  { kind, deviceId, device = "cuda" }: InstancePlacement,
  { devices }: GpuLimitParts,
): Promise<void> {
  if (kind !== "KIND_GPU" || device !== "cuda" || devices === undefined) return;
  const { gpus } = await devices.gpus();
  const uuid = gpus.find(({ id }) => id === deviceId)?.uuid ?? "";
  if (uuid !== "") statistics.addGpu(deviceId, uuid);
}

/** Refuses an instance on a GPU whose memory is in use beyond its limit. @throws ServerError UNAVAILABLE */
export async function checkGpuLimit(
  name: string,
  { kind, deviceId, device = "cuda" }: InstancePlacement,
  { devices, modelLoadGpuLimits }: GpuLimitParts,
): Promise<void> {
  if (kind !== "KIND_GPU" || device !== "cuda") return;
  const limit = modelLoadGpuLimits?.get(deviceId);
  if (limit === undefined) return;
  const memory = await devices?.gpuMemory(deviceId);
  // What cannot be measured cannot be exceeded; the load itself will tell.
  if (memory === undefined || memory.usedBytes <= memory.totalBytes * limit) return;
  const percent = (part: number) => `${Math.round(100 * part)}%`;
  throw new ServerError(
    "UNAVAILABLE",
    `can not create model '${name}': memory limit set for KIND_GPU ${deviceId} has exceeded, model ` +
      `loading is rejected (${percent(memory.usedBytes / memory.totalBytes)} of its memory is in ` +
      `use, --model-load-gpu-limit=${deviceId}:${limit} allows ${percent(limit)})`,
  );
}
