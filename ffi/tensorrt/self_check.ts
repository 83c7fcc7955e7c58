import { DeviceCalls } from "../cuda/device_calls.ts";
import { openCudaExecution } from "../cuda/execution_library.ts";
import { TensorRtError } from "./error.ts";
import type { ExecutionContext } from "./execution_context.ts";
import { openTensorRt } from "./library.ts";
import { type LoadedEngine, TensorRtRuntime } from "./runtime.ts";

/** What to check, as it passes to the process that checks. */
export interface SelfCheckOrder {
  readonly libraryPath: string | undefined;
  readonly cudaPath: string | undefined;
  readonly planPath: string;
  readonly deviceId: number;
}

/** How far the check is; after `engine` the plan is known to be readable. */
export type SelfCheckStage = "library" | "runtime" | "engine" | "context" | "done";

/**
 * Makes every kind of object of TensorRT once and checks what its methods answer (native-abi.md §1.8). It may crash
 * where the library is not what it says, so it runs in a process of its own. `report` is told each stage that begins.
 * @throws LibraryNotFoundError, TensorRtError or CudaError.
 */
export async function checkTensorRt(
  order: SelfCheckOrder,
  report: (stage: SelfCheckStage) => void,
): Promise<void> {
  report("library");
  const library = openTensorRt({ path: order.libraryPath });
  const cuda = await openCudaExecution(library.runner, { path: order.cudaPath });
  const device = new DeviceCalls(cuda, order.deviceId);
  report("runtime");
  await using runtime = await TensorRtRuntime.create(library, device);
  runtime.allowHostCode();
  report("engine");
  const engine = await runtime.deserialize(await Deno.readFile(order.planPath));
  report("context");
  const context = await runtime.createContext(engine, { name: "self check" });
  try {
    checkShapes(engine, context);
  } finally {
    await runtime.delete([context.object, engine.object]);
  }
  report("done");
}

/** With the best shapes of the first profile all shapes must be known. */
function checkShapes({ signature }: LoadedEngine, context: ExecutionContext): void {
  const inputs = signature.tensors.filter(({ isInput }) => isInput);
  for (const { name, profiles } of inputs) {
    const shape = profiles[0]?.opt ?? [];
    if (!context.setInputShape(name, shape)) {
      throw new TensorRtError(`The shape [${shape}] of profile 0 is refused for input '${name}'`);
    }
  }
  // Their values decide about shapes, and there are none.
  if (inputs.some(({ isShapeTensor }) => isShapeTensor)) return;
  const missing = context.inferShapes();
  if (missing !== 0) throw new TensorRtError(`inferShapes() gives ${missing}, expected 0`);
  for (const { name, isInput } of signature.tensors) {
    const shape = context.shapeOf(name);
    if (shape?.every((dim) => dim >= (isInput ? 0 : -1))) continue;
    throw new TensorRtError(`The shape of '${name}' is [${shape}] in an execution context`);
  }
}
