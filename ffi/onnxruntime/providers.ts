import {
  cString,
  CStringArray,
  OutParameter,
  pointerAt,
  readCString,
  whileHolding,
} from "../memory.ts";
import type { NativePointer } from "../handle.ts";
import type { OrtCalls } from "./api_table.ts";
import { checkStatus } from "./error.ts";

/** Name of an execution provider as `ProviderSettings` has it → as the library lists it. */
export const PROVIDER_NAMES = {
  CUDA: "CUDAExecutionProvider",
  TensorRT: "TensorrtExecutionProvider",
  OpenVINO: "OpenVINOExecutionProvider",
  WebGPU: "WebGpuExecutionProvider",
} as const;

/** An execution provider of a session and its options, by the provider's own keys. */
export interface ProviderSettings {
  readonly name: keyof typeof PROVIDER_NAMES;
  readonly options: Readonly<Record<string, string>>;
}

/**
 * Appends a provider to `OrtSessionOptions`, on the blocking pool: it may open libraries and devices.
 * @throws OrtError with the library's words.
 */
export async function appendProvider(
  calls: OrtCalls,
  options: NativePointer,
  provider: ProviderSettings,
): Promise<void> {
  const keys = new CStringArray(Object.keys(provider.options));
  const values = new CStringArray(Object.values(provider.options));
  const count = BigInt(keys.length);
  const texts = [keys.array, values.array, count] as const;
  const status = await whileHolding([keys, values], async () => {
    switch (provider.name) {
      case "CUDA":
        return await appendCuda(calls, options, texts);
      case "TensorRT":
        return await appendTensorRt(calls, options, texts);
      case "OpenVINO":
        return await calls.SessionOptionsAppendExecutionProvider_OpenVINO_V2(options, ...texts);
      case "WebGPU":
        return await appendByName(calls, options, { name: provider.name, texts });
    }
  });
  checkStatus(calls, status);
}

type OptionTexts = readonly [BigUint64Array<ArrayBuffer>, BigUint64Array<ArrayBuffer>, bigint];

async function appendByName(
  calls: OrtCalls,
  options: NativePointer,
  { name, texts }: { readonly name: string; readonly texts: OptionTexts },
): Promise<Deno.PointerValue> {
  const nameText = cString(name);
  return await whileHolding(
    [nameText],
    () => calls.SessionOptionsAppendExecutionProvider(options, nameText, ...texts),
  );
}

async function appendCuda(
  calls: OrtCalls,
  options: NativePointer,
  texts: OptionTexts,
): Promise<Deno.PointerValue> {
  const out = new OutParameter();
  checkStatus(calls, calls.CreateCUDAProviderOptions(out.cell));
  const { pointer } = out;
  try {
    checkStatus(calls, calls.UpdateCUDAProviderOptions(pointer, ...texts));
    return await calls.SessionOptionsAppendExecutionProvider_CUDA_V2(options, pointer);
  } finally {
    calls.ReleaseCUDAProviderOptions(pointer);
  }
}

async function appendTensorRt(
  calls: OrtCalls,
  options: NativePointer,
  texts: OptionTexts,
): Promise<Deno.PointerValue> {
  const out = new OutParameter();
  checkStatus(calls, calls.CreateTensorRTProviderOptions(out.cell));
  const { pointer } = out;
  try {
    checkStatus(calls, calls.UpdateTensorRTProviderOptions(pointer, ...texts));
    return await calls.SessionOptionsAppendExecutionProvider_TensorRT_V2(options, pointer);
  } finally {
    calls.ReleaseTensorRTProviderOptions(pointer);
  }
}

/** The providers a library was built with, by the names it lists them under. */
export function listProviders(calls: OrtCalls): string[] {
  const [list, count] = [new OutParameter(), new Int32Array(new ArrayBuffer(4))];
  checkStatus(calls, calls.GetAvailableProviders(list.cell, count));
  const { pointer } = list;
  if (pointer === null) return [];
  const view = new Deno.UnsafePointerView(pointer);
  const names = Array.from(
    { length: Math.min(count[0]!, MAX_PROVIDERS) },
    (_, index) => readCString(pointerAt(view.getBigUint64(8 * index))),
  );
  checkStatus(calls, calls.ReleaseAvailableProviders(pointer, count[0]!));
  return names;
}

/** More than ONNX Runtime has. */
const MAX_PROVIDERS = 64;
