import { addressOfPointer, pointerAt } from "../../ffi/memory.ts";
import { OrtError, OrtIoBinding, type OrtRunOptions } from "../../ffi/onnxruntime/mod.ts";
import type { OnnxModel } from "./model.ts";
import type { PreparedRun } from "./prepare_run.ts";

/**
 * A run with values on the device of the session: they are bound, so that the runtime reads and writes them where they
 * are. Outputs without a place of their own come to this machine, their values into `prepared.outputs`. Gives the error
 * of the runtime, if it had one; nothing of the outputs is held then.
 */
export async function runBound(
  { session, gate }: OnnxModel,
  prepared: PreparedRun,
  options: OrtRunOptions,
): Promise<OrtError | undefined> {
  const turn = gate.enter();
  if (turn !== undefined) await turn;
  try {
    using binding = OrtIoBinding.create(session);
    prepared.names.inputs.forEach((name, index) =>
      binding.bindInput(name, pointerAt(prepared.inputs[index]!))
    );
    prepared.names.outputs.forEach((name, index) => {
      const address = prepared.outputs[index]!;
      binding.bindOutput(name, address === 0n ? undefined : pointerAt(address));
    });
    await binding.run(options);
    const { calls } = session.environment;
    for (const [index, value] of binding.takeOutputs().entries()) {
      // Of those that we gave it is one more reference.
      if (prepared.outputs[index] !== 0n) calls.ReleaseValue(value);
      else prepared.outputs[index] = addressOfPointer(value);
    }
    return undefined;
  } catch (error) {
    if (error instanceof OrtError) return error;
    throw error;
  } finally {
    gate.leave();
  }
}
