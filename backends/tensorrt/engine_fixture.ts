import {
  type EngineSignature,
  type EngineTensor,
  type ProfileShapes,
  TRT_TYPE,
} from "../../ffi/tensorrt/signature.ts";

/** A tensor as an engine would describe it, with what a test gives. */
export function engineTensor(
  given: Partial<EngineTensor> & Pick<EngineTensor, "name">,
): EngineTensor {
  const isShapeTensor = given.isShapeTensor ?? false;
  return {
    isInput: true,
    type: TRT_TYPE.FLOAT,
    dims: [-1, 16],
    isShapeTensor,
    isOnHost: isShapeTensor,
    format: 0,
    formatText: "Row major linear",
    vectorizedDim: -1,
    componentsPerElement: -1,
    profiles: [],
    ...given,
  };
}

/** An engine with these tensors. */
export function engineSignature(
  tensors: readonly EngineTensor[],
  profileCount = 1,
): EngineSignature {
  return { name: "engine", profileCount, tensors };
}

/** A profile that allows the sizes from `min` to `max` of a first dimension, before 16. */
export function rowsProfile(min: number, max: number): ProfileShapes {
  return { min: [min, 16], opt: [max, 16], max: [max, 16] };
}

/** INPUT of 1 to `rows` rows of 16, and OUTPUT alike. */
export function rowsEngine(rows = 8): EngineSignature {
  return engineSignature([
    engineTensor({ name: "INPUT", profiles: [rowsProfile(1, rows)] }),
    engineTensor({ name: "OUTPUT", isInput: false }),
  ]);
}
