import { BACKEND_NAMES, openBackend } from "../../backends/registry.ts";
import { MachineDevices } from "../../backends/device.ts";
import type { DeviceMemory } from "../../backends/device_list.ts";
import { MemoryBudget } from "../../ffi/cuda/memory_budget.ts";
import { ServerError } from "../../proto/status.ts";
import { CustomMetrics } from "../core/custom_metrics.ts";
import { createModelHost } from "../core/model_host.ts";
import { createSystemClock } from "../core/system_clock.ts";
import type { JsonOutput } from "../http/json_response.ts";
import { settingsOf } from "./backend_settings.ts";
import { CUDA_POOL_BYTE_SIZE } from "./device_flags.ts";
import { type DeviceInventory, takeInventory } from "./device_inventory.ts";
import { findWebGpuAdapters } from "./device_probe.ts";
import { inventoryJson } from "./device_report.ts";
import type { ServeOptions } from "./serve_options.ts";

/** An inventory starts a process per library: whoever asks again within this time gets the one before. */
const INVENTORY_AGE_MS = 30_000;

/** The devices of the machine as a server process uses them. Nothing is looked for before it is asked for. */
export class ProgramDevices implements Disposable {
  readonly machine: MachineDevices;
  readonly memory: DeviceMemory;
  readonly #options: ServeOptions;
  readonly #exiting = new AbortController();
  #inventory: Promise<DeviceInventory> | undefined;
  /** When the inventory was complete; undefined while it is being taken. */
  #takenMs: number | undefined;

  constructor(options: ServeOptions) {
    this.#options = options;
    const { pinnedPoolByteSize, cudaPoolByteSizes } = options.devices;
    this.memory = {
      pinned: new MemoryBudget(pinnedPoolByteSize),
      poolByteSize: (gpuId) => cudaPoolByteSizes.get(gpuId) ?? CUDA_POOL_BYTE_SIZE,
    };
    this.machine = new MachineDevices({
      minComputeCapability: options.devices.minComputeCapability,
      findWebGpuAdapters: () =>
        findWebGpuAdapters(ortLibrary(options), { signal: this.#exiting.signal }),
    });
  }

  /** What every backend is told of devices. */
  get forBackends(): { readonly devices: MachineDevices; readonly deviceMemory: DeviceMemory } {
    return { devices: this.machine, deviceMemory: this.memory };
  }

  /** Everything there is and what it is good for; takes seconds, never rejects. */
  takeInventory(): Promise<DeviceInventory> {
    const options = this.#options;
    return takeInventory({
      devices: this.machine,
      backendNames: BACKEND_NAMES,
      openBackend: (name) => openForInventory(name, options, this.machine),
      ortLibrary: ortLibrary(options),
      pythonExecutable: settingsOf(options.server.backendConfig, "python")
        .get("python-executable") || "python3",
      signal: this.#exiting.signal,
    });
  }

  /** The same for `GET /v2/devices`, not older than 30 s. */
  async describe(): Promise<JsonOutput> {
    const takenMs = this.#takenMs;
    const isOld = takenMs !== undefined && performance.now() - takenMs >= INVENTORY_AGE_MS;
    // One at a time, however long it takes and however many ask.
    if (this.#inventory === undefined || isOld) {
      this.#takenMs = undefined;
      this.#inventory = this.takeInventory().finally(() => this.#takenMs = performance.now());
    }
    return inventoryJson(await this.#inventory);
  }

  /** Ends looks that are still going on. */
  [Symbol.dispose](): void {
    this.#exiting.abort();
    this.machine[Symbol.dispose]();
  }
}

function ortLibrary({ server }: ServeOptions): string | undefined {
  return settingsOf(server.backendConfig, "onnxruntime").get("library");
}

/** A backend that is only asked what it can use. */
function openForInventory(name: string, { server }: ServeOptions, devices: MachineDevices) {
  const ignore = (): void => {};
  const noModels = () => {
    throw new ServerError("UNSUPPORTED", "no model runs while devices are listed");
  };
  return openBackend(name, {
    settings: settingsOf(server.backendConfig, name),
    log: { info: ignore, warning: ignore, error: ignore, verbose: ignore },
    now: createSystemClock().now,
    countBatchRetry: ignore,
    host: createModelHost(noModels, new CustomMetrics()),
    devices,
  });
}
