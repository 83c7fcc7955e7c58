import type { ModelConfig, ModelInstanceGroup } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { EngineSignature, ProfileShapes } from "../../ffi/tensorrt/signature.ts";
import type { InstancePlacement } from "../backend.ts";

/** The group an instance belongs to: its name without the number. */
export function findGroup(
  config: ModelConfig,
  { name }: InstancePlacement,
): ModelInstanceGroup | undefined {
  return config.instanceGroup.find((group) => group.name === name.replace(/_\d+$/, ""));
}

/**
 * The optimization profiles an instance runs with: those its group lists, else the first.
 * @throws ServerError INVALID_ARG for one that the engine does not have.
 */
export function chooseProfiles(
  group: ModelInstanceGroup | undefined,
  { profileCount }: EngineSignature,
  modelName: string,
): number[] {
  const texts = group?.profile ?? [];
  if (texts.length === 0) return [0];
  const profiles = texts.map((text) => {
    const profile = /^\d+$/.test(text) ? Number(text) : -1;
    if (profile >= 0 && profile < profileCount) return profile;
    throw new ServerError(
      "INVALID_ARG",
      `instance group ${group?.name} of model ${modelName} specifies profile '${text}', the plan ` +
        `has ${profileCount} optimization profiles: expected a number from 0 to ${
          profileCount - 1
        }`,
    );
  });
  return [...new Set(profiles)];
}

/** The first place where a shape does not fit a profile; undefined when it fits. */
export function profileMisfit(
  shape: readonly number[],
  { min, max }: ProfileShapes,
): string | undefined {
  if (shape.length !== max.length) {
    return `model expected ${max.length} dimensions but received ${shape.length} dimensions`;
  }
  for (const [index, dim] of shape.entries()) {
    const [least, most] = [min[index]!, max[index]!];
    if (dim >= least && dim <= most) continue;
    return `model expected the shape of dimension ${index} to be between ${least} and ${most} but ` +
      `received ${dim}`;
  }
  return undefined;
}

/** Sum of the distances to the profile's best shape: the smaller, the better it suits. */
export function profileDistance(shape: readonly number[], { opt }: ProfileShapes): number {
  return shape.reduce((sum, dim, index) => sum + Math.abs(dim - (opt[index] ?? dim)), 0);
}

/** Most rows that these profiles take; 0 when the engine does not batch. */
export function maxRows(signature: EngineSignature, profiles: readonly number[]): number {
  const inputs = signature.tensors.filter(({ isInput, isShapeTensor }) =>
    isInput && !isShapeTensor
  );
  const outputs = signature.tensors.filter(({ isInput, isShapeTensor }) =>
    !isInput && !isShapeTensor
  );
  const isBatching = inputs.length > 0 &&
    [...inputs, ...outputs].every(({ dims }) => dims[0] === -1);
  if (!isBatching) return 0;
  const rows = profiles.map((profile) =>
    Math.min(...inputs.map((input) => input.profiles[profile]?.max[0] ?? 0))
  );
  return Math.max(...rows, 0);
}
