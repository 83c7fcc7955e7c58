/** An address that is not null. */
export type NativePointer = Deno.PointerObject;

interface Owned {
  readonly pointer: NativePointer;
  readonly destroy: (pointer: NativePointer) => void;
}

/**
 * Owner of one native object. `Symbol.dispose` destroys it once; a finalizer destroys it when the owner was dropped
 * without that.
 */
export abstract class NativeHandle implements Disposable {
  static readonly #finalizer = new FinalizationRegistry<Owned>((owned) =>
    owned.destroy(owned.pointer)
  );
  readonly #owned: Owned;
  #disposed = false;

  protected constructor(pointer: NativePointer, destroy: (pointer: NativePointer) => void) {
    this.#owned = { pointer, destroy };
    NativeHandle.#finalizer.register(this, this.#owned, this.#owned);
  }

  /** @throws TypeError after disposal. */
  get pointer(): NativePointer {
    if (this.#disposed) throw new TypeError(`Cannot use ${this.constructor.name}: it is disposed`);
    return this.#owned.pointer;
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /** Ends the ownership without destroying: the caller takes over. */
  protected detach(): NativePointer {
    const pointer = this.pointer;
    this.#disposed = true;
    NativeHandle.#finalizer.unregister(this.#owned);
    return pointer;
  }

  [Symbol.dispose](): void {
    if (this.#disposed) return;
    const { destroy } = this.#owned;
    destroy(this.detach());
  }
}
