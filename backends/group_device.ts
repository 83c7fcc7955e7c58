import { type ModelConfig, ModelInstanceGroup_Kind } from "../proto/gen/model_config_pb.ts";
import type { ModelInstanceGroup } from "../proto/gen/model_config_pb.ts";
import type { DeviceClass } from "./device_list.ts";

/** Parameter of a served configuration that tells on what a group runs and why, behind which its name stands. */
export const DEVICE_PARAMETER = "nereid.device.";

/** The family on which instances of a group run, by its configuration. */
export function deviceOfGroup(config: ModelConfig, group: ModelInstanceGroup): DeviceClass {
  const text = config.parameters[DEVICE_PARAMETER + group.name]?.stringValue ?? "";
  const device = /^(cuda|webgpu|cpu)\b/.exec(text)?.[1] as DeviceClass | undefined;
  return device ?? (group.kind === ModelInstanceGroup_Kind.GPU ? "cuda" : "cpu");
}
