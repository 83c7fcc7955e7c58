import type { OpenRegion, RegionOpener } from "./shared_memory.ts";

/** Memory of other processes, for tests: 64 bytes per region, named as in the order of registration. */
export class FakeMemory implements RegionOpener {
  maxRegions = 1000;
  /** Thrown by the next attempts to open. */
  failure: Error | undefined;
  /** Thrown by every access. */
  accessFailure: Error | undefined;
  /** Thrown when it is asked whether bytes were lost. */
  damage: Error | undefined;
  /** Regions that were opened and not closed. */
  openCount = 0;
  copyCount = 0;
  writeCount = 0;
  /** Where GPU regions lie, by their device; undefined = they do not tell. */
  gpuAddress: bigint | undefined;
  readonly #system = new Uint8Array(64);
  readonly #cuda = new Uint8Array(64);

  /** The bytes of the system regions; with "g" of the GPU regions. */
  bytes(region: string): Uint8Array<ArrayBuffer> {
    return region === "g" ? this.#cuda : this.#system;
  }

  /** The same as numbers. */
  floats(region: string): Float32Array {
    return new Float32Array(this.bytes(region).buffer);
  }

  openSystem(): Promise<OpenRegion> {
    return this.#open(this.#system, true);
  }

  openCuda(_handle: Uint8Array, deviceId: number): Promise<OpenRegion> {
    return this.#open(this.#cuda, false, deviceId);
  }

  #open(bytes: Uint8Array, hasViews: boolean, deviceId = 0): Promise<OpenRegion> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    this.openCount++;
    let isOpen = true;
    const use = (offset: number, byteSize: number): Uint8Array => {
      if (!isOpen) throw new TypeError("Region is used after its end");
      if (this.accessFailure !== undefined) throw this.accessFailure;
      return bytes.subarray(offset, offset + byteSize);
    };
    return Promise.resolve({
      view: (offset, byteSize) => hasViews ? use(offset, byteSize) : undefined,
      copy: (offset, byteSize) => {
        this.copyCount++;
        return use(offset, byteSize).slice();
      },
      write: (data, offset) => {
        this.writeCount++;
        use(offset, data.byteLength).set(data);
      },
      place: (offset, byteSize) => {
        if (hasViews || this.gpuAddress === undefined) return undefined;
        return { deviceId, address: this.gpuAddress + BigInt(offset), byteSize };
      },
      checkWhole: () => {
        if (this.damage !== undefined) throw this.damage;
      },
      holds: (data) => hasViews && data.buffer === bytes.buffer,
      close: () => {
        if (!isOpen) throw new TypeError("Region is closed twice");
        isOpen = false;
        this.openCount--;
      },
    });
  }
}
