export { hasCudaLibrary, locateTorch, type TorchFolders } from "./locate.ts";
export { INPUTS_ARE_DICT, switchBits, type TorchRunSwitches } from "./run_switches.ts";
export { buildShim, defaultShimFolder } from "./shim_build.ts";
export { TorchError } from "./torch_error.ts";
export {
  type PackageSignature,
  SCALAR_TYPE,
  type ScriptSignature,
  type TorchArgument,
  TorchModule,
  type TorchValue,
} from "./torch_module.ts";
export { TorchRuntime } from "./torch_runtime.ts";
