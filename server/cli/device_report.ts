import { DEVICE_CLASS_NAMES, type KindOffer } from "../../backends/device_list.ts";
import type { JsonOutput } from "../http/json_response.ts";
import type { DeviceInventory } from "./device_inventory.ts";
import type { LibraryReport } from "./library_search.ts";

const COLUMN = 16;
const MIB = 1024 * 1024;

/** The inventory for people. */
export function formatInventory(inventory: DeviceInventory): string {
  const { cpu, driver, gpus, gpuReason, webGpu, libraries, backends } = inventory;
  const lines = [
    "Devices",
    row("CPU", `${cpu.coreCount} × ${cpu.model || cpu.architecture}, ${size(cpu.memoryByteSize)}`),
    row("NVIDIA driver", driver.reason ?? `${driver.version}, CUDA ${driver.cudaVersion}`),
  ];
  for (const gpu of gpus) {
    const used = gpu.memory === undefined ? "" : `, ${size(gpu.memory.usedBytes)} in use`;
    const text = `${gpu.name}, compute capability ${gpu.computeCapability}, ` +
      `${size(gpu.memoryByteSize)}${used}, ${gpu.uuid}`;
    lines.push(row(`GPU ${gpu.id}`, text));
    if (gpu.refusal !== undefined) lines.push(row("", `not used: ${gpu.refusal}`));
  }
  if (driver.reason === undefined && gpuReason !== undefined) {
    lines.push(row("GPU", `none: ${gpuReason}`));
  }
  for (const adapter of webGpu.adapters) {
    const note = adapter.isSoftware ? " (runs on the CPU)" : "";
    lines.push(row("WebGPU", `${adapter.name}${note}, by ${adapter.source}`));
  }
  for (const [source, reason] of Object.entries(webGpu.reasons)) {
    lines.push(row("WebGPU", `none by ${source}: ${reason}`));
  }
  lines.push("", "Libraries");
  for (const library of libraries) {
    const { name, path, version, reason, packages } = library;
    if (path !== undefined) lines.push(row(name, [version, path].filter(Boolean).join("  ")));
    if (reason !== undefined) lines.push(row(path === undefined ? name : "", `missing: ${reason}`));
    if (packages !== undefined) {
      lines.push(row("", `${packages} (for ${library.backends.join(", ")})`));
    }
  }
  lines.push("", "Backends");
  for (const { name, kinds, error } of backends) {
    const usable = kinds.filter(isUsable).map(formatOffer).join(", ");
    lines.push(row(name, error ?? (usable || "nothing that is here")));
    for (const offer of kinds) {
      if (isUsable(offer)) continue;
      lines.push(row("", `not ${DEVICE_CLASS_NAMES[offer.device]}: ${offer.refusal}`));
    }
    const missing = libraries.filter(({ backends, reason }) =>
      reason !== undefined && backends.includes(name)
    );
    for (const library of missing) lines.push(row("", formatMissing(library)));
  }
  return lines.join("\n") + "\n";
}

/** The inventory for programs: `devices --json` and `GET /v2/devices`. */
export function inventoryJson(inventory: DeviceInventory): JsonOutput {
  const { cpu, driver, gpus, gpuReason, webGpu, libraries, backends } = inventory;
  return {
    cpu: {
      model: cpu.model,
      architecture: cpu.architecture,
      core_count: cpu.coreCount,
      memory_byte_size: cpu.memoryByteSize,
    },
    driver: {
      version: driver.version,
      cuda_version: driver.cudaVersion,
      reason: driver.reason ?? gpuReason,
    },
    gpus: gpus.map((gpu) => ({
      id: gpu.id,
      name: gpu.name,
      uuid: gpu.uuid,
      pci_bus_id: gpu.pciBusId,
      compute_capability: gpu.computeCapability,
      memory_byte_size: gpu.memoryByteSize,
      memory_used_byte_size: gpu.memory?.usedBytes,
      usable: gpu.refusal === undefined,
      reason: gpu.refusal,
    })),
    webgpu: {
      adapters: webGpu.adapters.map((adapter) => ({
        id: adapter.id,
        source: adapter.source,
        name: adapter.name,
        vendor: adapter.vendor,
        software: adapter.isSoftware,
      })),
      missing: { ...webGpu.reasons },
    },
    libraries: libraries.map((library) => ({
      name: library.name,
      found: library.path !== undefined,
      path: library.path,
      version: library.version,
      reason: library.reason,
      packages: library.packages,
      backends: library.backends,
    })),
    backends: backends.map(({ name, kinds, error }) => ({
      name,
      error,
      kinds: kinds.map((offer) => ({
        kind: offer.kind,
        device: offer.device,
        device_ids: offer.deviceIds,
        usable: isUsable(offer),
        reason: offer.refusal,
      })),
    })),
  };
}

function formatMissing({ name, path, reason }: LibraryReport): string {
  return path === undefined
    ? `${name} is missing, see above`
    : `${name} cannot be used: ${reason}, see above`;
}

function isUsable({ refusal }: KindOffer): boolean {
  return refusal === undefined;
}

function formatOffer({ kind, device, deviceIds }: KindOffer): string {
  const name = DEVICE_CLASS_NAMES[device];
  if (device === "cpu") return `${name} (${kind})`;
  return `${name} (${kind}, devices ${deviceIds.join(", ")})`;
}

function row(head: string, text: string): string {
  return `  ${head.padEnd(COLUMN)} ${text}`;
}

function size(bytes: number): string {
  return bytes === 0 ? "memory unknown" : `${Math.round(bytes / MIB)} MiB`;
}
