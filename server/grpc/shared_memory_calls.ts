import type { InferenceApi } from "../core/inference_api.ts";
import type { InferenceService } from "./inference_service.ts";

/** The calls that register regions of shared memory and tell of them (grpc.md §2.1, http.md §6). */
export function sharedMemoryCalls(api: InferenceApi) {
  return {
    ...systemCalls(api),
    ...cudaCalls(api),
  } satisfies Partial<InferenceService>;
}

function systemCalls(api: InferenceApi) {
  return {
    systemSharedMemoryStatus({ name }) {
      const regions = api.sharedMemoryStatus("system", name).flatMap((region) =>
        region.kind === "system" ? [[region.name, withoutKind(region)] as const] : []
      );
      return { regions: toMap(regions) };
    },
    async systemSharedMemoryRegister({ name, key, offset, byteSize }) {
      await api.registerSystemSharedMemory({ kind: "system", name, key, offset, byteSize });
      return {};
    },
    systemSharedMemoryUnregister({ name }) {
      api.unregisterSharedMemory("system", name);
      return {};
    },
  } satisfies Partial<InferenceService>;
}

function cudaCalls(api: InferenceApi) {
  return {
    cudaSharedMemoryStatus({ name }) {
      const regions = api.sharedMemoryStatus("cuda", name).flatMap((region) =>
        region.kind === "cuda"
          ? [
            [region.name, {
              name: region.name,
              deviceId: BigInt.asUintN(64, region.deviceId),
              byteSize: region.byteSize,
            }] as const,
          ]
          : []
      );
      return { regions: toMap(regions) };
    },
    async cudaSharedMemoryRegister({ name, rawHandle, deviceId, byteSize }) {
      const region = { kind: "cuda", name, deviceId, byteSize } as const;
      await api.registerCudaSharedMemory(region, rawHandle);
      return {};
    },
    cudaSharedMemoryUnregister({ name }) {
      api.unregisterSharedMemory("cuda", name);
      return {};
    },
  } satisfies Partial<InferenceService>;
}

function withoutKind<Region extends { readonly kind: string }>(
  region: Region,
): Omit<Region, "kind"> {
  const { kind: _kind, ...rest } = region;
  return rest;
}

/** An object without prototype: clients choose the names, and one may be "__proto__". */
function toMap<Value>(entries: readonly (readonly [string, Value])[]): Record<string, Value> {
  const map: Record<string, Value> = Object.create(null);
  for (const [name, value] of entries) map[name] = value;
  return map;
}
