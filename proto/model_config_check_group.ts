import {
  type ModelConfig,
  type ModelInstanceGroup,
  ModelInstanceGroup_Kind,
} from "./gen/model_config_pb.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import { isEnsemble } from "./model_config_normalize.ts";

/** More instances than this of one model are a mistake. */
const INSTANCES_MAX = 1024;

/** What a machine has for groups of KIND_GPU. */
export interface GpuMachine {
  /** `--min-supported-compute-capability`. */
  readonly minComputeCapability: number;
  /** NVIDIA GPUs that the model's backend can use. */
  readonly gpuIds: readonly number[];
  /** By index of the group: why it cannot have what it asks for, and what to write instead. */
  readonly refusals: ReadonlyMap<number, string>;
}

/**
 * The checks of config.md §6.3 on normalised instance groups. Without a machine, nothing is known of GPUs and groups of
 * KIND_GPU are taken as they are.
 */
export function checkInstanceGroups(config: ModelConfig, machine?: GpuMachine): ConfigIssue[] {
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
    } else if (machine !== undefined) {
      issues.push(
        ...checkGpus(group, { path, start, machine, refusal: machine.refusals.get(index) }),
      );
    }
    if (group.profile.length > 0 && config.platform !== "tensorrt_plan") {
      const message = `${start} and platform ${config.platform}specifies profile field which is ` +
        `only supported for TensorRT models`;
      issues.push({ path: `${path}.profile`, message });
    }
  }
  const count = config.instanceGroup.reduce((total, group) => total + instanceCount(group), 0);
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

/** A group has so many instances on each of its GPUs. */
function instanceCount({ count, gpus }: ModelInstanceGroup): number {
  return count * Math.max(1, gpus.length);
}

/** The faults of a group of KIND_GPU that cannot have what it asks for. */
function checkGpus(
  group: ModelInstanceGroup,
  { path, start, machine, refusal }: {
    readonly path: string;
    readonly start: string;
    readonly machine: GpuMachine;
    readonly refusal: string | undefined;
  },
): ConfigIssue[] {
  if (refusal === undefined) return [];
  const { gpuIds, minComputeCapability } = machine;
  // Where there are GPUs, another number may be meant: then there is more than one mend.
  const mends = gpuIds.length > 0 ? {} : { mend: { fields: automaticKind(group, path) } };
  if (group.gpus.length === 0) {
    const message = `${start} has kind KIND_GPU but no GPUs are available`;
    return [{ path: `${path}.kind`, message, hint: refusal, ...mends }];
  }
  const list = `GPUs with at least the minimum required CUDA compute compatibility of ` +
    `${minComputeCapability.toFixed(6)} are: ${gpuIds.join(", ") || "none"}`;
  return group.gpus.flatMap((gpu, position) => {
    if (gpuIds.includes(gpu)) return [];
    const message = `${start} specifies invalid or unsupported gpu id ${gpu}. ${list}`;
    return [{ path: `${path}.gpus[${position}]`, message, hint: refusal, ...mends }];
  });
}

/** The group may run on whatever there is. */
function automaticKind({ gpus }: ModelInstanceGroup, path: string) {
  return [
    { path: `${path}.kind`, value: "KIND_AUTO" },
    ...gpus.map((_gpu, position) => ({ path: `${path}.gpus[${position}]`, value: undefined })),
  ];
}
