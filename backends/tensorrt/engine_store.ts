import type { LoadedEngine } from "../../ffi/tensorrt/runtime.ts";
import type { DeviceSlot, DeviceSlots } from "./device_slots.ts";
import { openEngine } from "./open_engine.ts";

/** An engine that somebody uses. */
export interface HeldEngine {
  readonly engine: LoadedEngine;
  readonly slot: DeviceSlot;
  /** Ends the use; the engine goes with the last one. */
  readonly release: () => Promise<void>;
}

interface StoredEngine {
  readonly engine: LoadedEngine;
  readonly slot: DeviceSlot;
  holders: number;
}

/** What an engine is made for. */
export interface EnginePlace {
  readonly deviceId: number;
  /** Deep learning accelerator; undefined = the GPU itself. */
  readonly dlaCore?: number | undefined;
}

/**
 * The engines of one model: one per device, which its instances share; before TensorRT 10 one per instance, since two
 * execution contexts of an engine must not use the same profile there.
 */
export class EngineStore {
  readonly #slots: DeviceSlots;
  readonly #findPlan: (slot: DeviceSlot) => Promise<string>;
  readonly #stored = new Map<string, StoredEngine>();
  #isFirst = true;

  constructor(slots: DeviceSlots, findPlan: (slot: DeviceSlot) => Promise<string>) {
    this.#slots = slots;
    this.#findPlan = findPlan;
  }

  /** @throws ServerError telling why the plan cannot be loaded there. */
  async acquire(place: EnginePlace): Promise<HeldEngine> {
    const slot = await this.#slots.open(place.deviceId);
    const isShared = !this.#slots.library.table.ownsProfiles;
    const key = `${place.deviceId} ${place.dlaCore ?? ""}`;
    return await this.#slots.whileLoading(async () => {
      let stored = this.#stored.get(key);
      if (stored === undefined) {
        const path = await this.#findPlan(slot);
        const engine = await openEngine(slot, path, place.dlaCore);
        stored = { engine, slot, holders: 0 };
        if (isShared || this.#isFirst) this.#stored.set(key, stored);
        this.#isFirst = false;
      } else if (!isShared) {
        // The one that was opened for the checks: the first instance may have it, and nobody else.
        this.#stored.delete(key);
      }
      return this.#hold(stored, key);
    });
  }

  #hold(stored: StoredEngine, key: string): HeldEngine {
    const { engine, slot } = stored;
    stored.holders++;
    let isReleased = false;
    return {
      engine,
      slot,
      release: async () => {
        if (isReleased) return;
        isReleased = true;
        if (--stored.holders > 0) return;
        if (this.#stored.get(key) === stored) this.#stored.delete(key);
        await slot.runtime.delete([engine.object]);
      },
    };
  }
}
