import type { NativePointer } from "../handle.ts";
import { openLibrary } from "../library.ts";
import { libraryFileFault } from "../library_file.ts";
import { cString, OutParameter, pointerAt, readCString, whileHolding } from "../memory.ts";
import { findElementCodes, type OvElementType } from "./element_type.ts";
import { checkStatus, GENERAL_ERROR, OvError } from "./error.ts";
import { openRowTools, type RowTools } from "./infer_call.ts";
import { locateOvLibrary } from "./locate.ts";
import { type OvCalls, SYMBOLS } from "./symbols.ts";
import { nativeShape } from "./tensor.ts";

/** The opened library with its `ov_core_t`; both stay for the life of the process. */
export class OvRuntime {
  readonly calls: OvCalls;
  readonly path: string;
  /** Such as `2026.4.1-…`. */
  readonly version: string;
  readonly core: NativePointer;
  /** For runs whose failures keep their own texts. */
  readonly rowTools: RowTools | undefined = openRowTools();
  readonly emptyBlock: Uint8Array<ArrayBuffer> = new Uint8Array(new ArrayBuffer(64));
  readonly #codes: ReadonlyMap<OvElementType, number>;
  readonly #types: ReadonlyMap<number, OvElementType>;

  private constructor(calls: OvCalls, path: string) {
    this.calls = calls;
    this.path = path;
    this.version = readVersion(calls);
    this.#codes = findElementCodes((code) => byteSizeOf(calls, code));
    this.#types = new Map([...this.#codes].map(([type, code]) => [code, type]));
    const out = new OutParameter();
    checkStatus(calls, calls.ov_core_create(out.cell));
    if (out.pointer === null) throw new OvError(0, "ov_core_create made nothing");
    this.core = out.pointer;
  }

  /** @throws LibraryNotFoundError, OvError, or TypeError for a library that is not as we know it. */
  static open(libraryPath: string | undefined): OvRuntime {
    const key = libraryPath ?? "";
    const known = openedRuntimes.get(key);
    if (known !== undefined) return known;
    const places = locateOvLibrary(libraryPath);
    const { path, symbols } = openLibrary("the OpenVINO library (libopenvino_c)", {
      ...places,
      symbols: SYMBOLS,
    });
    const runtime = new OvRuntime(symbols, path);
    openedRuntimes.set(key, runtime);
    return runtime;
  }

  codeOf(type: OvElementType): number {
    return this.#codes.get(type)!;
  }

  /** Undefined for types without whole bytes, strings, and those that the model does not fix. */
  typeOf(code: number): OvElementType | undefined {
    return this.#types.get(code);
  }

  /** Names of the devices it can use now, such as `CPU`. @throws OvError */
  async devices(): Promise<string[]> {
    const { calls, core } = this;
    // ov_available_devices_t: char** devices, size_t count
    const list = new BigUint64Array(new ArrayBuffer(16));
    const status = await whileHolding(
      [list],
      () => calls.ov_core_get_available_devices(core, list),
    );
    checkStatus(calls, status);
    const names = pointerAt(list[0]!);
    const view = names === null ? undefined : new Deno.UnsafePointerView(names);
    const devices = Array.from(
      { length: Number(list[1]) },
      (_, index) => readCString(view?.getPointer(index * 8) ?? null),
    );
    calls.ov_available_devices_free(list);
    return devices;
  }

  /** Loads a library with operators of its own. @throws OvError */
  async addExtension(path: string): Promise<void> {
    const fault = libraryFileFault(path);
    if (fault !== undefined) throw new OvError(GENERAL_ERROR, `'${path}': ${fault}`);
    const text = cString(path);
    const { calls, core } = this;
    checkStatus(
      calls,
      await whileHolding([text], () => calls.ov_core_add_extension(core, text)),
    );
  }
}

/** By the path asked for: a library stays open for the life of the process. */
const openedRuntimes = new Map<string, OvRuntime>();

function readVersion(calls: OvCalls): string {
  // ov_version_t: const char* build, const char* description
  const texts = new BigUint64Array(new ArrayBuffer(16));
  checkStatus(calls, calls.ov_get_openvino_version(texts));
  const version = readCString(pointerAt(texts[0]!));
  calls.ov_version_free(texts);
  return version;
}

/** Bytes of a tensor with one element; undefined when there can be none. */
function byteSizeOf(calls: OvCalls, code: number): number | undefined {
  const out = new OutParameter();
  const shape = nativeShape([1]);
  if (calls.ov_tensor_create(code, shape.bytes, out.cell) !== 0) return undefined;
  const tensor = out.pointer;
  shape.dims.fill(0n);
  if (tensor === null) return undefined;
  const status = calls.ov_tensor_get_byte_size(tensor, out.cell);
  calls.ov_tensor_free(tensor);
  return status === 0 ? out.size : undefined;
}
