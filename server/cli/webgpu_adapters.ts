import type { WebGpuAdapter } from "../../backends/device_list.ts";
import type { ProbeAnswer } from "./probe_message.ts";

/** The adapters of `navigator.gpu`: the fast one and the frugal one, if they differ. */
export async function findAdapters(): Promise<ProbeAnswer> {
  const gpu = (globalThis.navigator as Navigator & { gpu?: GPU }).gpu;
  if (gpu === undefined) return { error: "this Deno has no navigator.gpu" };
  const adapters: WebGpuAdapter[] = [];
  for (const powerPreference of ["high-performance", "low-power"] as const) {
    const adapter = await gpu.requestAdapter({ powerPreference });
    if (adapter === null) continue;
    const { vendor, architecture, device, description } = adapter.info;
    const name = description || device || architecture || "unnamed";
    if (adapters.some((other) => other.name === name && other.vendor === vendor)) continue;
    const isSoftware = isSoftwareRenderer(name) || adapter.info.isFallbackAdapter === true;
    adapters.push({ id: adapters.length, source: "navigator.gpu", name, vendor, isSoftware });
  }
  if (adapters.length > 0) return { adapters };
  return { error: "no adapter: no Vulkan driver is installed" };
}

function isSoftwareRenderer(name: string): boolean {
  return /llvmpipe|lavapipe|swiftshader|softpipe|software/i.test(name);
}
