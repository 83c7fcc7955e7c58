import { DataType } from "../../proto/gen/model_config_pb.ts";
import { torchScript } from "../fixtures/torchscript.ts";
import { openInstance, type OpenOptions } from "./fixture.ts";
import { frameworkLibrary } from "./framework_library.ts";

/** Where the shim is kept for all tests. */
export const CACHE = new URL("../../.cache/frameworks", import.meta.url).pathname;

/** libtorch, or why there is none. */
export const library = frameworkLibrary("torch");

/** Opens a TorchScript model: its `forward`, or the bytes of its file. */
export function open(model: string | Uint8Array, options: OpenOptions = {}) {
  const bytes = typeof model === "string" ? torchScript(model) : model;
  return openInstance("pytorch", {
    files: { "model.pt": bytes },
    ...options,
    settings: { library: "path" in library ? library.path : "", cache: CACHE, ...options.settings },
  });
}

/** A tensor of a configuration. */
export function row(name: string, dataType = DataType.TYPE_FP32, dims = [4n]) {
  return { name, dataType, dims };
}

export const ADD = `
def forward(self: __torch__.M, x: Tensor, y: Tensor) -> Tuple[Tensor, Tensor]:
  return (torch.add(x, y), torch.sub(x, y))
`;
