import type { CallGate } from "../../ffi/call_gate.ts";
import type { CallList } from "../../ffi/call_list.ts";
import type { DeviceCalls } from "../../ffi/cuda/device_calls.ts";
import type { ExecutionContext } from "../../ffi/tensorrt/execution_context.ts";
import type { TensorRtLibrary } from "../../ffi/tensorrt/library.ts";
import type { OutputAllocator } from "../../ffi/tensorrt/output_allocator.ts";
import type { OutputBlocks } from "./output_blocks.ts";
import type { RunPlan } from "./run_plan.ts";
import type { TensorBuffers } from "./tensor_buffers.ts";

/** An execution context that stays with one optimization profile, and what it was told last. */
export interface ProfileContext {
  readonly profile: number;
  readonly context: ExecutionContext;
  /** Shapes of the inputs by name. */
  readonly shapes: Map<string, readonly number[]>;
  /** Addresses of all tensors by name. */
  readonly addresses: Map<string, bigint>;
  /** Shapes of the outputs for those of the inputs; empty = not asked yet, -1 = known only after the run. */
  readonly outputShapes: Map<string, readonly number[]>;
}

/** A captured run. */
export interface CudaGraph {
  /** `cudaGraphExec_t`. */
  readonly address: bigint;
  /** Shapes of the inputs it was captured with, by name. */
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  readonly outputShapes: ReadonlyMap<string, readonly number[]>;
  /** Fewest rows it may serve. */
  readonly minRows: number;
}

/** What an instance runs with; everything is used for one run at a time. */
export interface Machine {
  readonly plan: RunPlan;
  readonly device: DeviceCalls;
  readonly library: TensorRtLibrary;
  /** Stream of inputs and computation. */
  readonly stream: bigint;
  /** Stream of outputs: the same, or one of its own with the event that it waits for. */
  readonly outputStream: bigint;
  readonly computedEvent: bigint | undefined;
  readonly doneEvent: bigint;
  readonly contexts: readonly ProfileContext[];
  readonly buffers: TensorBuffers;
  readonly blocks: OutputBlocks;
  /** For outputs whose shape only the run tells. */
  readonly allocators: Map<string, OutputAllocator>;
  readonly graphs: CudaGraph[];
  /** The calls of the run in progress; kept, since making one costs more than filling it. */
  readonly list: CallList;
  /** Where TensorRT's log was when the run began. */
  logPosition: number;
  /** Bounds the lists of calls in flight of all models. */
  readonly gate: CallGate;
  /** Whether an input is on its way to the device while the next is still being put together. */
  readonly isEager: boolean;
}
