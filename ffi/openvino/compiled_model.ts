import { NativeHandle, type NativePointer } from "../handle.ts";
import { cString, OutParameter, pointerAt, readCString, whileHolding } from "../memory.ts";
import type { OvElementType } from "./element_type.ts";
import { checkStatus, OvError } from "./error.ts";
import { OvInferRequest } from "./infer_request.ts";
import type { OvRuntime } from "./runtime.ts";
import { MAX_PROPERTY_COUNT } from "./symbols.ts";
import { OvTensor } from "./tensor.ts";

/** An input or output of a model. */
export interface OvPort {
  readonly name: string;
  /** Undefined for a type that cannot be served; `elementCode` is the library's number of it. */
  readonly elementType: OvElementType | undefined;
  readonly elementCode: number;
  /** -1 for a dimension that is not fixed; undefined when the rank is not known. */
  readonly dims: readonly number[] | undefined;
}

export interface OvCompileOptions {
  /** Such as `CPU`. */
  readonly device: string;
  /** At most {@linkcode MAX_PROPERTY_COUNT}. */
  readonly properties: ReadonlyMap<string, string>;
}

/** A model made ready for a device. Any number of infer requests may run on it. */
export class OvCompiledModel extends NativeHandle {
  readonly runtime: OvRuntime;
  readonly inputs: readonly OvPort[];
  readonly outputs: readonly OvPort[];

  private constructor(runtime: OvRuntime, pointer: NativePointer) {
    super(pointer, (model) => runtime.calls.ov_compiled_model_free(model));
    this.runtime = runtime;
    this.inputs = readPorts(runtime, pointer, "input");
    this.outputs = readPorts(runtime, pointer, "output");
  }

  /**
   * Reads a model file (or a SavedModel's folder) and compiles it, on the blocking pool.
   * @throws OvError; `stage` of {@linkcode OvStageError} tells which of both failed.
   */
  static async open(
    runtime: OvRuntime,
    path: string,
    { device, properties }: OvCompileOptions,
  ): Promise<OvCompiledModel> {
    const { calls, core } = runtime;
    if (properties.size > MAX_PROPERTY_COUNT) {
      throw new RangeError(`Cannot compile with ${properties.size} properties`);
    }
    const out = new OutParameter();
    const file = cString(path);
    const read = await whileHolding(
      [file, out.cell],
      () => calls.ov_core_read_model(core, file, null, out.cell),
    );
    checkStage(runtime, read, "reading the model");
    const model = out.pointer!;
    const texts = [...properties].flat().map(cString);
    const target = cString(device);
    const list: (BufferSource | null)[] = Array.from(
      { length: 2 * MAX_PROPERTY_COUNT },
      (_, index) => texts[index] ?? null,
    );
    try {
      const status = await whileHolding([texts, target, out.cell], () => {
        // Typed once more: a list of unknown length does not fit parameters that are counted.
        const compile = calls.ov_core_compile_model as unknown as CompileCall;
        return compile(core, model, target, BigInt(texts.length), out.cell, ...list);
      });
      checkStage(runtime, status, `compiling the model for ${device}`);
    } finally {
      calls.ov_model_free(model);
    }
    return new OvCompiledModel(runtime, out.pointer!);
  }

  /** @throws OvError */
  async createInferRequest(): Promise<OvInferRequest> {
    const { calls } = this.runtime;
    const out = new OutParameter();
    const { pointer } = this;
    const status = await whileHolding(
      [this, out.cell],
      () => calls.ov_compiled_model_create_infer_request(pointer, out.cell),
    );
    checkStatus(calls, status);
    if (out.pointer === null) throw new OvError(0, "no infer request was made");
    const request = new OvInferRequest(this.runtime, out.pointer);
    try {
      this.outputs.forEach(({ elementType, dims }, index) => {
        if (elementType === undefined) return;
        const shape = (dims ?? [-1]).map((dim) => Math.max(dim, 0));
        request.setOutput(index, OvTensor.create(this.runtime, { elementType, shape }));
      });
      return request;
    } catch (error) {
      request[Symbol.dispose]();
      throw error;
    }
  }
}

type CompileCall = (
  core: NativePointer,
  model: NativePointer,
  device: BufferSource,
  count: bigint,
  out: BufferSource,
  ...properties: readonly (BufferSource | null)[]
) => Promise<number>;

/** A failure with what was being done. */
export class OvStageError extends OvError {
  readonly stage: string;

  constructor(cause: OvError, stage: string) {
    super(cause.status, cause.message);
    this.stage = stage;
  }
}

function checkStage(runtime: OvRuntime, status: number, stage: string): void {
  try {
    checkStatus(runtime.calls, status);
  } catch (error) {
    throw error instanceof OvError ? new OvStageError(error, stage) : error;
  }
}

function readPorts(runtime: OvRuntime, model: NativePointer, kind: "input" | "output"): OvPort[] {
  const { calls } = runtime;
  const out = new OutParameter();
  const isInput = kind === "input";
  const count = isInput
    ? calls.ov_compiled_model_inputs_size
    : calls.ov_compiled_model_outputs_size;
  const portAt = isInput
    ? calls.ov_compiled_model_input_by_index
    : calls.ov_compiled_model_output_by_index;
  checkStatus(calls, count(model, out.cell));
  return Array.from({ length: out.size }, (_, index) => {
    checkStatus(calls, portAt(model, BigInt(index), out.cell));
    const port = out.pointer!;
    try {
      return readPort(runtime, port, `${kind}_${index}`);
    } finally {
      calls.ov_output_const_port_free(port);
    }
  });
}

function readPort(runtime: OvRuntime, port: NativePointer, fallbackName: string): OvPort {
  const { calls } = runtime;
  const type = new Int32Array(new ArrayBuffer(4));
  checkStatus(calls, calls.ov_port_get_element_type(port, type));
  const elementCode = type[0]!;
  return {
    name: readName(runtime, port) || fallbackName,
    elementType: runtime.typeOf(elementCode),
    elementCode,
    dims: readPartialShape(runtime, port),
  };
}

/** "" for a tensor without a name. */
function readName({ calls }: OvRuntime, port: NativePointer): string {
  const out = new OutParameter();
  if (calls.ov_port_get_any_name(port, out.cell) !== 0) return "";
  const name = readCString(out.pointer);
  calls.ov_free(out.pointer);
  return name;
}

function readPartialShape({ calls }: OvRuntime, port: NativePointer): number[] | undefined {
  // ov_partial_shape_t: {int64_t min, max} rank, {int64_t min, max}* dims
  const shape = new BigInt64Array(new ArrayBuffer(24));
  checkStatus(calls, calls.ov_port_get_partial_shape(port, shape));
  try {
    const [min, max] = shape;
    if (min !== max) return undefined;
    const dims = pointerAt(BigInt.asUintN(64, shape[2]!));
    if (dims === null) return [];
    const view = new Deno.UnsafePointerView(dims);
    return Array.from({ length: Number(min) }, (_, index) => {
      const low = view.getBigInt64(index * 16);
      return low === view.getBigInt64(index * 16 + 8) ? Number(low) : -1;
    });
  } finally {
    calls.ov_partial_shape_free(shape);
  }
}
