import {
  DEVICE_CLASS_NAMES,
  type DeviceClass,
  type InstancePreference,
  type KindOffer,
} from "../backend.ts";

const KINDS: readonly unknown[] = ["KIND_CPU", "KIND_GPU", "KIND_MODEL"];
const OFFER_COUNT_MAX = 64;
const DEVICE_COUNT_MAX = 1024;
const INSTANCE_COUNT_MAX = 1024;

/** Offers as a process tells them. @throws RangeError for what cannot be. */
export function readOffers(value: unknown): readonly KindOffer[] {
  if (!Array.isArray(value) || value.length > OFFER_COUNT_MAX || !value.every(isOffer)) {
    throw new RangeError(
      `Expected kinds of instances, got ${JSON.stringify(value)?.slice(0, 200)}`,
    );
  }
  return value;
}

/** A preference as a process tells it. @throws RangeError for what cannot be. */
export function readPreference(value: unknown): InstancePreference {
  const { kind, count } = (value ?? {}) as Record<string, unknown>;
  const isCount = Number.isSafeInteger(count) && (count as number) >= 1;
  if (!KINDS.includes(kind) || !isCount || (count as number) > INSTANCE_COUNT_MAX) {
    throw new RangeError(`Expected a kind and a count, got ${String(kind)} and ${String(count)}`);
  }
  return { kind: kind as InstancePreference["kind"], count: count as number };
}

function isOffer(value: unknown): value is KindOffer {
  if (typeof value !== "object" || value === null) return false;
  const { kind, device, deviceIds, refusal } = value as Record<string, unknown>;
  return KINDS.includes(kind) && Object.hasOwn(DEVICE_CLASS_NAMES, device as DeviceClass) &&
    Array.isArray(deviceIds) && deviceIds.length <= DEVICE_COUNT_MAX &&
    deviceIds.every((id) => Number.isSafeInteger(id) && id >= 0) &&
    (refusal === undefined || typeof refusal === "string");
}
