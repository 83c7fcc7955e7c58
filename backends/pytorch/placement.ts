import { type ModelConfig, ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { InstancePlacement } from "../backend.ts";
import type { TorchPlace } from "./model.ts";

/** What of the library tells where a model can run. */
interface CudaCounter {
  readonly version: string;
  cudaDeviceCount(): number | undefined;
}

/** @throws ServerError UNSUPPORTED when libtorch has no such device. */
export function torchPlace(
  { name, kind, deviceId }: Pick<InstancePlacement, "name" | "kind" | "deviceId">,
  { modelName, format, runtime }: {
    readonly modelName: string;
    readonly format: "script" | "package";
    readonly runtime: CudaCounter;
  },
): TorchPlace {
  if (kind === "KIND_MODEL" && format === "script") return "saved";
  if (kind !== "KIND_GPU") return "cpu";
  const count = runtime.cudaDeviceCount();
  if (count !== undefined && deviceId < count) return deviceId;
  const reason = count === undefined
    ? `libtorch ${runtime.version} is built without CUDA`
    : `libtorch ${runtime.version} sees ${count} CUDA device${count === 1 ? "" : "s"}`;
  throw new ServerError(
    "UNSUPPORTED",
    `instance '${name}' of model '${modelName}' cannot run on GPU ${deviceId}: ${reason}`,
  );
}

/** Where the first instance of a configuration goes. @throws ServerError like {@linkcode torchPlace}. */
export function firstPlace(config: ModelConfig, runtime: CudaCounter): TorchPlace {
  const format = config.platform === "torch_aoti" ? "package" : "script";
  const group = config.instanceGroup[0];
  const placement = {
    name: group?.name ?? config.name,
    kind: group?.kind === ModelInstanceGroup_Kind.GPU
      ? "KIND_GPU" as const
      : group?.kind === ModelInstanceGroup_Kind.MODEL
      ? "KIND_MODEL" as const
      : "KIND_CPU" as const,
    deviceId: group?.gpus[0] ?? 0,
  };
  return torchPlace(placement, { modelName: config.name, format, runtime });
}

/** @throws ServerError INVALID_ARG when the code of a package is for another device. */
export function checkPackagePlace(modelName: string, device: string, place: TorchPlace): void {
  const wanted = typeof place === "number" ? "cuda" : "cpu";
  if (device === "" || device === wanted) return;
  throw new ServerError(
    "INVALID_ARG",
    `the package of model '${modelName}' is compiled for '${device}', its instances are on ` +
      `'${wanted}': set instance_group { kind: ${device === "cuda" ? "KIND_GPU" : "KIND_CPU"} }`,
  );
}
