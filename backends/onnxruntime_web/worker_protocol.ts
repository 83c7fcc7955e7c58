/** What a session is loaded with; plain data for the way to a Worker. */
export interface SessionRequest {
  /** Absolute path of the model's file. */
  readonly path: string;
  /** Files beside it that hold its weights, by the names that the model has for them. */
  readonly externalFiles: readonly string[];
  readonly provider: "wasm" | "webgpu";
  readonly threadCount: number;
  readonly graphOptimizationLevel: "disabled" | "basic" | "extended" | "all";
  readonly executionMode: "sequential" | "parallel";
  readonly enableCpuMemArena?: boolean;
  readonly enableMemPattern?: boolean;
  /** On WebGPU: all nodes run there, or the model is refused. */
  readonly isDeviceOnly: boolean;
  /** Entries of the session's configuration. */
  readonly entries: Readonly<Record<string, string>>;
}

/** A tensor on its way from or to a Worker: its buffer is transferred. */
export interface WireTensor {
  readonly name: string;
  /** The runtime's name, such as `float32`. */
  readonly type: string;
  readonly dims: readonly number[];
  /** Little-endian elements; for strings the elements with their lengths in front. */
  readonly data: ArrayBuffer;
}

/** An input or output as the runtime describes it; `type` is absent for what is no tensor. */
export interface WireSignature {
  readonly name: string;
  readonly type?: string;
  /** Numbers (4294967295 = not fixed) and symbols. */
  readonly dims: readonly (number | string)[];
}

export type ToWorker =
  | { readonly kind: "load"; readonly request: SessionRequest }
  | {
    readonly kind: "run";
    readonly inputs: readonly WireTensor[];
    readonly outputs: readonly string[];
  };

/** Every question has one answer, in their order. */
export type FromWorker =
  | {
    readonly kind: "loaded";
    readonly version: string;
    readonly inputs: readonly WireSignature[];
    readonly outputs: readonly WireSignature[];
  }
  | { readonly kind: "result"; readonly outputs: readonly WireTensor[] }
  | {
    readonly kind: "failed";
    readonly message: string;
    /** The client's fault, not the model's. */
    readonly isInput: boolean;
    /** The runtime cannot be used any more. */
    readonly isFatal: boolean;
  };
