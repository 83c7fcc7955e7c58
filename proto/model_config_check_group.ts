import { type ModelConfig, ModelInstanceGroup_Kind } from "./gen/model_config_pb.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import { isEnsemble } from "./model_config_normalize.ts";

/** More instances than this of one model are a mistake. */
const INSTANCES_MAX = 1024;

/** The reference's words for a machine on which no GPU can be used. */
const NO_GPU_LIST =
  "GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: none";

const NO_GPU_HINT = "; this version serves on CPUs: KIND_CPU or KIND_AUTO is expected";

/** The checks of config.md §6.3 on normalised instance groups, on a machine without usable GPUs. */
export function checkInstanceGroups(config: ModelConfig): ConfigIssue[] {
  if (isEnsemble(config)) return [];
  const issues: ConfigIssue[] = [];
  const model = config.name;
  if (config.instanceGroup.length === 0) {
    return [{
      path: "instance_group",
      message: `must specify one or more 'instance group's for ${model}`,
    }];
  }
  for (const [index, group] of config.instanceGroup.entries()) {
    const path = `instance_group[${index}]`;
    const start = `instance group ${group.name} of model ${model}`;
    if (group.count < 0) {
      const message = `${start} has count ${group.count}, expected a number >= 0`;
      issues.push({ path: `${path}.count`, message });
    }
    if (group.kind !== ModelInstanceGroup_Kind.GPU) {
      const kind = `KIND_${ModelInstanceGroup_Kind[group.kind]}`;
      if (group.gpus.length > 0) {
        const message = `${start} has kind ${kind} but specifies one or more GPUs`;
        issues.push({ path: `${path}.gpus`, message });
      }
    } else if (group.gpus.length === 0) {
      const message = `${start} has kind KIND_GPU but no GPUs are available${NO_GPU_HINT}`;
      issues.push({ path: `${path}.kind`, message });
    }
    for (const [position, gpu] of group.gpus.entries()) {
      if (group.kind !== ModelInstanceGroup_Kind.GPU) break;
      const message =
        `${start} specifies invalid or unsupported gpu id ${gpu}. ${NO_GPU_LIST}${NO_GPU_HINT}`;
      issues.push({ path: `${path}.gpus[${position}]`, message });
    }
    if (group.profile.length > 0 && config.platform !== "tensorrt_plan") {
      const message = `${start} and platform ${config.platform}specifies profile field which is ` +
        `only supported for TensorRT models`;
      issues.push({ path: `${path}.profile`, message });
    }
  }
  const count = config.instanceGroup.reduce((total, group) => total + group.count, 0);
  if (count > INSTANCES_MAX) {
    const message =
      `model ${model} asks for ${count} instances, at most ${INSTANCES_MAX} are allowed`;
    issues.push({ path: "instance_group", message });
  }
  if (config.instanceGroup.every((group) => group.passive)) {
    const message = `all instance groups of model ${model} are passive, nothing could run requests`;
    issues.push({ path: "instance_group", message });
  }
  return issues;
}
