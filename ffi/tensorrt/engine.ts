import { cString, readCString } from "../memory.ts";
import { DIMS_RESULT, readDims } from "./dims.ts";
import { TensorRtError } from "./error.ts";
import type { NativeObject } from "./native_object.ts";
import type { EngineSignature, EngineTensor, ProfileShapes } from "./signature.ts";
import type { SlotTable } from "./slot_table.ts";

const MAX_TENSOR_COUNT = 4096;
const MAX_PROFILE_COUNT = 4096;
const MAX_TYPE = 11;
const INPUT_MODE = 1;
const OUTPUT_MODE = 2;
const HOST_LOCATION = 1;
const SELECTORS = { min: 0, opt: 1, max: 2 } as const;

/**
 * Reads what an `ICudaEngine` tells of itself, and checks that it makes sense: nonsense means that the methods are not
 * where they are expected (native-abi.md §1.8).
 * @throws TensorRtError naming what makes no sense.
 */
export function readSignature(engine: NativeObject, table: SlotTable): EngineSignature {
  const { engine: slots } = table;
  const self = engine.bind(slots.getPImpl, { parameters: [], result: "u64" })();
  check(self === engine.address, "getPImpl() of the engine does not give the engine");
  const count = engine.bind(slots.getNbIOTensors, { parameters: [], result: "i32" })();
  check(count >= 1 && count <= MAX_TENSOR_COUNT, `the engine has ${count} tensors`);
  const profileCount = engine.bind(slots.getNbOptimizationProfiles, INT_RESULT)();
  check(
    profileCount >= 1 && profileCount <= MAX_PROFILE_COUNT,
    `the engine has ${profileCount} optimization profiles`,
  );
  const nameAt = engine.bind(slots.getIOTensorName, { parameters: ["i32"], result: "pointer" });
  const reader = createTensorReader(engine, table, profileCount);
  const tensors: EngineTensor[] = [];
  for (let index = 0; index < count; index++) {
    const name = readCString(nameAt(index));
    check(isPrintable(name), `tensor ${index} of the engine has no readable name`);
    check(tensors.every((other) => other.name !== name), `two tensors are named '${name}'`);
    tensors.push(reader(name));
  }
  const name = readCString(engine.bind(slots.getName, POINTER_RESULT)());
  return { name, profileCount, tensors };
}

const INT_RESULT = { parameters: [], result: "i32" } as const;
const POINTER_RESULT = { parameters: [], result: "pointer" } as const;
const BY_NAME = { parameters: ["buffer"], result: "i32" } as const;

function createTensorReader(
  engine: NativeObject,
  { engine: slots, dimBits }: SlotTable,
  profileCount: number,
): (name: string) => EngineTensor {
  const dims = DIMS_RESULT[dimBits];
  const shapeOf = engine.bind(slots.getTensorShape, { parameters: ["buffer"], result: dims });
  const profileShape = engine.bind(slots.getProfileShape, {
    parameters: ["buffer", "i32", "i32"],
    result: dims,
  });
  const typeOf = engine.bind(slots.getTensorDataType, BY_NAME);
  const modeOf = engine.bind(slots.getTensorIOMode, BY_NAME);
  const locationOf = engine.bind(slots.getTensorLocation, BY_NAME);
  const formatOf = engine.bind(slots.getTensorFormat, BY_NAME);
  const vectorizedDim = engine.bind(slots.getTensorVectorizedDim, BY_NAME);
  const components = engine.bind(slots.getTensorComponentsPerElement, BY_NAME);
  const formatText = engine.bind(slots.getTensorFormatDesc, {
    parameters: ["buffer"],
    result: "pointer",
  });
  const isShape = engine.bind(slots.isShapeInferenceIO, { parameters: ["buffer"], result: "bool" });
  const read = (bytes: Uint8Array, what: string): number[] =>
    readDims(bytes, dimBits) ?? fail(`${what} has no shape`);

  return (name) => {
    const cName = cString(name);
    const mode = modeOf(cName);
    check(mode === INPUT_MODE || mode === OUTPUT_MODE, `'${name}' has I/O mode ${mode}`);
    const type = typeOf(cName);
    check(type >= 0 && type <= MAX_TYPE, `'${name}' has data type ${type}`);
    const profiles: ProfileShapes[] = [];
    for (let profile = 0; mode === INPUT_MODE && profile < profileCount; profile++) {
      const shape = (selector: number) =>
        read(profileShape(cName, profile, selector), `profile ${profile} of '${name}'`);
      const { min, opt, max } = SELECTORS;
      profiles.push({ min: shape(min), opt: shape(opt), max: shape(max) });
    }
    return {
      name,
      isInput: mode === INPUT_MODE,
      type,
      dims: read(shapeOf(cName), `'${name}'`),
      isShapeTensor: isShape(cName),
      isOnHost: locationOf(cName) === HOST_LOCATION,
      format: formatOf(cName),
      formatText: readCString(formatText(cName)),
      vectorizedDim: vectorizedDim(cName),
      componentsPerElement: components(cName),
      profiles,
    };
  };
}

function isPrintable(name: string): boolean {
  // deno-lint-ignore no-control-regex
  return name !== "" && name.length <= 4095 && !/[\x00-\x1f\x7f\ufffd]/.test(name);
}

function fail(what: string): never {
  throw new TensorRtError(`Cannot read the engine: ${what}`);
}

function check(condition: boolean, what: string): void {
  if (!condition) fail(what);
}
