import { createMemoryFile, hasMemoryFiles, openMemoryFile } from "../../ffi/posix/memory_file.ts";
import { Arena } from "./arena.ts";
import { PeerMemory } from "./peer_memory.ts";
import { type PeerSlot, TensorWriter } from "./tensor_wire.ts";

/** So long slots of the process wait at most for a frame that takes them along; and so many. */
const FREE_DELAY_MS = 50;
const FREE_COUNT_MAX = 32;

/** Sizes of the memory that one process and the server share, bytes. */
export interface MemoryLimits {
  readonly initialByteSize: number;
  readonly growthByteSize: number;
  /** Of each side. */
  readonly maxByteSize: number;
}

/** The memory that the server and one process share, both ways. */
export class StubMemory {
  readonly #arena: Arena;
  readonly #peer: PeerMemory;
  #peerPid = 0;
  #isShared = hasMemoryFiles();
  #free: PeerSlot[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;
  /** Sends a FREE; set by the link. */
  sendFree: () => void = () => {};

  constructor({ initialByteSize, growthByteSize, maxByteSize }: MemoryLimits) {
    const createSegment = createMemoryFile;
    this.#arena = new Arena({ createSegment, initialByteSize, growthByteSize, maxByteSize });
    this.#peer = new PeerMemory((segment) => openMemoryFile(this.#peerPid, segment));
  }

  /** The first segment, for the process to try; undefined when there is no shared memory. */
  offer(): number | undefined {
    if (!this.#isShared) return undefined;
    try {
      return this.#arena.open();
    } catch {
      this.#isShared = false;
      return undefined;
    }
  }

  /** In the process itself: takes the offer of the server, `segment` of process `pid`. Tells whether that works. */
  accept({ pid, segment }: { readonly pid: number; readonly segment: number }): boolean {
    this.#peerPid = pid;
    try {
      this.#isShared &&= segment >= 0 && this.#peer.view(segment, 0, 0).length === 0;
    } catch {
      this.#isShared = false;
    }
    return this.#isShared;
  }

  /** The process's answer to the offer. */
  agree({ pid, isShared }: { readonly pid: number; readonly isShared: boolean }): void {
    this.#peerPid = pid;
    this.#isShared &&= isShared;
  }

  get peer(): PeerMemory | undefined {
    return this.#isShared ? this.#peer : undefined;
  }

  /** Slots that the process has not given back. */
  get usedCount(): number {
    return this.#arena.usedCount;
  }

  writer(): TensorWriter {
    return new TensorWriter(this.#isShared ? this.#arena : undefined);
  }

  /** Slots of ours that came back: the `f` of a frame. @throws RangeError */
  takeBack(list: unknown): void {
    if (!Array.isArray(list)) throw new RangeError("Expected a list of slots");
    for (const slot of list as unknown[]) {
      if (!Array.isArray(slot)) throw new RangeError("Expected a slot");
      this.#arena.free(slot[0] as number, slot[1] as number);
    }
  }

  /** Notes slots of the process that are not looked at any more. */
  readonly giveBack = (slots: readonly PeerSlot[]): void => {
    if (this.#isClosed) return;
    for (const slot of slots) this.#free.push(slot);
    if (this.#free.length >= FREE_COUNT_MAX) this.sendFree();
    else if (this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        if (this.#free.length > 0) this.sendFree();
      }, FREE_DELAY_MS);
      Deno.unrefTimer(this.#timer);
    }
  };

  /** What is to be given back with the next frame; undefined = nothing. */
  takeFree(): readonly PeerSlot[] | undefined {
    if (this.#free.length === 0) return undefined;
    const free = this.#free;
    this.#free = [];
    return free;
  }

  /** The process is gone. What is looked at still stays. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#free = [];
    clearTimeout(this.#timer);
    this.#arena[Symbol.dispose]();
    this.#peer.close();
  }
}
