import { missingBridge, PROVIDER_NAMES } from "../../ffi/onnxruntime/mod.ts";
import { CPU_OFFER, type Devices, type KindOffer, offerGpus } from "../device_list.ts";
import { missingVulkanDriver } from "./vulkan_drivers.ts";

/** The library that models would run on. */
export interface RuntimeLibrary {
  readonly version: string;
  readonly path: string;
  /** Execution providers it was built with, as it lists them. */
  readonly providers: readonly string[];
}

/** How the kinds of instances are found. */
export interface KindOptions {
  /** The library, or why it cannot be opened. Called only where there is a GPU. */
  readonly openLibrary: () => RuntimeLibrary | Error;
  /** Whether an adapter that runs on the CPU counts as a GPU. */
  readonly allowsSoftware: boolean;
  /** Whether WebGPU comes before CUDA. */
  readonly prefersWebGpu: boolean;
}

/** What ONNX Runtime can run models on here, best first, and what it lacks. Never rejects. */
export async function offerKinds(devices: Devices, options: KindOptions): Promise<KindOffer[]> {
  const cuda = await offerCuda(devices, options);
  const webGpu = await offerWebGpu(devices, options);
  return [...options.prefersWebGpu ? [webGpu, cuda] : [cuda, webGpu], CPU_OFFER];
}

async function offerCuda(devices: Devices, { openLibrary }: KindOptions): Promise<KindOffer> {
  const offer = offerGpus(await devices.gpus());
  if (offer.refusal !== undefined) return offer;
  const refusal = missingCuda(openLibrary());
  return refusal === "" ? offer : { ...offer, deviceIds: [], refusal };
}

/** Why a library has no provider for CUDA, and what brings one; "" when nothing is known against it. */
function missingCuda(library: RuntimeLibrary | Error): string {
  if (library instanceof Error) return library.message;
  const { version, path, providers } = library;
  const isBuiltIn = providers.includes(PROVIDER_NAMES.CUDA);
  const reason = isBuiltIn
    ? missingBridge(path, PROVIDER_NAMES.CUDA)
    : `it was built without (it has ${providers.join(", ")})`;
  return reason === ""
    ? ""
    : `ONNX Runtime ${version} has no provider for CUDA: ${reason} ${path} (${CUDA_PACKAGE})`;
}

/** What brings the providers for NVIDIA GPUs. */
export const CUDA_PACKAGE = "the NuGet package Microsoft.ML.OnnxRuntime.Gpu.Linux of the same " +
  "version brings it, with libraries of CUDA and cuDNN from NVIDIA; " +
  "--backend-config=onnxruntime,library=FILE names its libonnxruntime.so";

async function offerWebGpu(
  devices: Devices,
  { allowsSoftware }: KindOptions,
): Promise<KindOffer> {
  const offer = { kind: "KIND_GPU", device: "webgpu", deviceIds: [] as number[] } as const;
  const missing = missingVulkanDriver();
  if (missing !== undefined) return { ...offer, refusal: `${missing} (${VULKAN_PACKAGE})` };
  const { adapters, reasons } = await devices.webGpuAdapters();
  const own = adapters.filter(({ source }) => source === "onnxruntime");
  if (own.length === 0) {
    const reason = reasons.onnxruntime ?? "the native ONNX Runtime finds no adapter";
    return { ...offer, refusal: `${reason} (${VULKAN_PACKAGE})` };
  }
  const usable = own.filter(({ isSoftware }) => allowsSoftware || !isSoftware);
  if (usable.length > 0) return { ...offer, deviceIds: usable.map(({ id }) => id) };
  const names = own.map(({ name }) => name).join(", ");
  const refusal = `the adapter ${names} runs on the CPU, slower than ONNX Runtime itself there ` +
    `(--backend-config=onnxruntime,webgpu-software=true takes it all the same)`;
  return { ...offer, refusal };
}

const VULKAN_PACKAGE = "the driver of the GPU's maker or the package mesa-vulkan-drivers, from " +
  "version 25 on, and libvulkan1 bring one";
