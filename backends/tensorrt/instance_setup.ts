import {
  type ModelConfig,
  ModelOptimizationPolicy_ModelPriority as Priority,
} from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import { CallList } from "../../ffi/call_list.ts";
import type { DeviceCalls, DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { CudaError } from "../../ffi/cuda/error.ts";
import { TensorRtError } from "../../ffi/tensorrt/error.ts";
import type { BackendLog, InstancePlacement } from "../backend.ts";
import type { DeviceMemory } from "../device_list.ts";
import { dropGraphs, placeTensor, prepareContext } from "./context_state.ts";
import { captureGraph, captureObstacle, plannedGraphs } from "./cuda_graphs.ts";
import type { HeldEngine } from "./engine_store.ts";
import type { Machine, ProfileContext } from "./machine.ts";
import type { MergedInput } from "./merge_inputs.ts";
import { OutputBlocks } from "./output_blocks.ts";
import { PinnedMemory } from "./pinned_memory.ts";
import { formatByteSize, type RunPlan } from "./run_plan.ts";
import { TensorBuffers } from "./tensor_buffers.ts";

/** What a machine is made of. */
export interface MachineParts {
  readonly placement: InstancePlacement;
  readonly config: ModelConfig;
  readonly plan: RunPlan;
  readonly held: HeldEngine;
  readonly profiles: readonly number[];
  /** `createExecutionContext`'s strategy: 0 = static, 1 = on profile change. */
  readonly allocationStrategy: number;
  readonly gate: CallGate;
  readonly log: BackendLog;
  /** Pinned memory of all models; absent = without bound. */
  readonly pinnedBudget: DeviceMemory["pinned"] | undefined;
}

/** A machine and what frees it. */
export interface OwnedMachine {
  readonly machine: Machine;
  readonly dispose: () => Promise<void>;
}

/**
 * Makes the execution contexts, streams and memory of an instance, as large as its profiles allow, and captures its
 * CUDA graphs.
 * @throws ServerError, CudaError or TensorRtError; nothing is left behind then.
 */
export async function createMachine(parts: MachineParts): Promise<OwnedMachine> {
  const { config, plan, held, placement, log } = parts;
  const { device, runtime } = held.slot;
  const { cuda, inputPinnedMemory, outputPinnedMemory, priority, eagerBatching } =
    config.optimization ?? {};
  const warn = (message: string) => log.warning(`instance '${placement.name}': ${message}`);
  await using stack = new AsyncDisposableStack();
  stack.defer(held.release);
  const own = (object: DeviceObject): bigint => {
    stack.defer(() => device.destroy([object]));
    return object.address;
  };
  const stream = own(await device.createStream(streamPriority(priority)));
  const hasOutputStream = cuda?.outputCopyStream === true;
  const busyWait = cuda?.busyWaitEvents === true;
  const pinned = new PinnedMemory(device, { budget: parts.pinnedBudget, warn });
  const isOn = (setting: { readonly enable: boolean } | undefined) => setting?.enable ?? true;
  const buffers = new TensorBuffers(device, isOn(inputPinnedMemory) ? pinned : undefined);
  stack.use(buffers);
  const blocks = new OutputBlocks(isOn(outputPinnedMemory) ? pinned : undefined);
  stack.use(blocks);
  const machine: Machine = {
    plan,
    device,
    library: runtime.library,
    stream,
    outputStream: hasOutputStream ? own(await device.createStream()) : stream,
    computedEvent: hasOutputStream ? own(await device.createEvent({ busyWait })) : undefined,
    doneEvent: own(await device.createEvent({ busyWait })),
    contexts: await createContexts(parts, { device, stream, stack }),
    buffers,
    blocks,
    allocators: new Map(),
    graphs: [],
    list: new CallList(),
    logPosition: 0,
    gate: parts.gate,
    isEager: eagerBatching === true,
  };
  stack.defer(() => dropGraphs(machine));
  for (const state of machine.contexts) await prepareLargest(machine, state);
  if (cuda?.graphs === true) await captureGraphs(machine, config, warn);
  const kept = stack.move();
  return { machine, dispose: () => kept.disposeAsync() };
}

function streamPriority(priority: Priority | undefined): "default" | "max" | "min" {
  if (priority === Priority.PRIORITY_MAX) return "max";
  return priority === Priority.PRIORITY_MIN ? "min" : "default";
}

async function createContexts(
  { held, placement, profiles, allocationStrategy }: MachineParts,
  { device, stream, stack }: {
    readonly device: DeviceCalls;
    readonly stream: bigint;
    readonly stack: AsyncDisposableStack;
  },
): Promise<ProfileContext[]> {
  const { runtime } = held.slot;
  const contexts: ProfileContext[] = [];
  for (const profile of profiles) {
    const context = await runtime.createContext(held.engine, {
      name: placement.name,
      allocationStrategy,
    });
    stack.defer(() => runtime.delete([context.object]));
    const list = new CallList();
    device.begin(list);
    context.addSetProfile(list, profile, stream);
    device.add(list, "cudaStreamSynchronize", [stream]);
    const failed = await list.run(runtime.library.runner);
    if (failed !== undefined) {
      throw new ServerError(
        "INTERNAL",
        `instance '${placement.name}' cannot use optimization profile ${profile}: ${failed.name} ` +
          `failed`,
      );
    }
    contexts.push({
      profile,
      context,
      shapes: new Map(),
      addresses: new Map(),
      outputShapes: new Map(),
    });
  }
  return contexts;
}

/** Gives all tensors the memory of the largest shapes of a profile, so that runs need not wait for memory. */
async function prepareLargest(machine: Machine, state: ProfileContext): Promise<void> {
  const inputs: MergedInput[] = [];
  for (const plan of machine.plan.inputs.values()) {
    const { tensor, name } = plan;
    if (tensor.isOnHost) continue;
    const shape = tensor.profiles[state.profile]?.max ?? tensor.dims;
    const byteSize = formatByteSize(plan, shape);
    inputs.push({ plan, shape, parts: [], byteSize });
    await placeTensor(machine, state, { name, byteSize, tensor });
  }
  // The values of shape tensors decide about the outputs, and come with the requests only.
  if (inputs.length < machine.plan.inputs.size) return;
  await prepareContext(machine, state, inputs);
}

async function captureGraphs(
  machine: Machine,
  config: ModelConfig,
  warn: (message: string) => void,
): Promise<void> {
  const obstacle = captureObstacle(machine);
  const cuda = config.optimization?.cuda;
  if (obstacle !== undefined || cuda === undefined) {
    return warn(`runs without CUDA graphs: ${obstacle}`);
  }
  const planned = plannedGraphs(config, cuda, machine);
  if (planned.length === 0) {
    return warn("runs without CUDA graphs: an input has free dimensions, name them in graph_spec");
  }
  for (const each of planned) {
    const state = machine.contexts.find(({ profile }) =>
      [...each.shapes].every(([name, shape]) => {
        const shapes = machine.plan.inputs.get(name)?.tensor.profiles[profile];
        return shapes === undefined ||
          shape.every((dim, index) => dim >= shapes.min[index]! && dim <= shapes.max[index]!);
      })
    );
    const text = [...each.shapes].map(([name, shape]) => `${name} [${shape}]`).join(", ");
    if (state === undefined) {
      warn(`no CUDA graph for ${text}: it fits no profile`);
      continue;
    }
    try {
      machine.graphs.push(await captureGraph(machine, state, each));
    } catch (error) {
      if (!(error instanceof CudaError || error instanceof TensorRtError)) throw error;
      warn(`no CUDA graph for ${text}: ${error.message}`);
    }
  }
}
