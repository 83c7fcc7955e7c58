import type { Backend, BackendContext } from "./backend.ts";

type Open = (context: BackendContext) => Promise<Backend>;

/** The one table of backends; each is loaded when a model first needs it. */
const BACKENDS: Readonly<Record<string, Open>> = {
  onnxruntime: async (context) => {
    const { OnnxBackend } = await import("./onnxruntime/mod.ts");
    return new OnnxBackend(context);
  },
  identity: async (context) => {
    const { IdentityBackend } = await import("./identity/mod.ts");
    return new IdentityBackend(context);
  },
};

/** Names that {@linkcode openBackend} knows. */
export const BACKEND_NAMES: readonly string[] = Object.keys(BACKENDS);

/** Opens a backend; undefined for an unknown name. */
export function openBackend(
  name: string,
  context: BackendContext,
): Promise<Backend> | undefined {
  return Object.hasOwn(BACKENDS, name) ? BACKENDS[name]?.(context) : undefined;
}
