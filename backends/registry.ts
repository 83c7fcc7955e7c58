import type { Backend, BackendContext } from "./backend.ts";

type Open = (context: BackendContext) => Promise<Backend>;

/** The one table of backends; each is loaded when a model first needs it. */
const BACKENDS: ReadonlyMap<string, Open> = new Map<string, Open>([
  ["onnxruntime", async (context) => {
    const { OnnxBackend } = await import("./onnxruntime/mod.ts");
    return new OnnxBackend(context);
  }],
  ["identity", async (context) => {
    const { createIdentityBackend } = await import("./identity/mod.ts");
    return createIdentityBackend(context);
  }],
  ["sequence", async (context) => {
    const { createSequenceBackend } = await import("./sequence/mod.ts");
    return createSequenceBackend(context);
  }],
  ["dyna_sequence", async (context) => {
    const { createDynaSequenceBackend } = await import("./dyna_sequence/mod.ts");
    return createDynaSequenceBackend(context);
  }],
]);

/** Names that {@linkcode openBackend} knows. */
export const BACKEND_NAMES: readonly string[] = [...BACKENDS.keys()];

/** Opens a backend; undefined for an unknown name. */
export function openBackend(
  name: string,
  context: BackendContext,
): Promise<Backend> | undefined {
  return BACKENDS.get(name)?.(context);
}
