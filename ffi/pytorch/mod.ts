export { locateTorch, type TorchFolders } from "./locate.ts";
export { buildShim, defaultShimFolder } from "./shim_build.ts";
export {
  SCALAR_TYPE,
  type TorchArgument,
  TorchError,
  type TorchInput,
  TorchModule,
  type TorchOutput,
  type TorchRunOptions,
  TorchRuntime,
} from "./torch_module.ts";
