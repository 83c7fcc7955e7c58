import { clone, toJson } from "@bufbuild/protobuf";
import { deviceOfGroup, type InstancePlacement } from "../../backends/backend.ts";
import {
  type ModelConfig,
  ModelInstanceGroup_Kind,
  ModelInstanceGroupSchema,
} from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { PlannedInstance } from "./scheduler/rate_limiter.ts";

/** An instance that a configuration asks for. */
export interface PlacedInstance extends PlannedInstance {
  readonly placement: InstancePlacement;
  /** Equal for instances that can stand for each other (scheduling.md §10): the group without name and count. */
  readonly signature: string;
}

/** One plan per instance of the groups; passive groups have none (config.md §6). @throws ServerError for none at all. */
export function planInstances(config: ModelConfig): PlacedInstance[] {
  const result: PlacedInstance[] = [];
  for (const [groupIndex, group] of config.instanceGroup.entries()) {
    if (group.passive) continue;
    const kind = placementKind(group.kind);
    const device = deviceOfGroup(config, group);
    const devices = kind === "KIND_GPU" && group.gpus.length > 0 ? group.gpus : [0];
    const plain = clone(ModelInstanceGroupSchema, group);
    Object.assign(plain, { name: "", count: 0, gpus: [] });
    const groupText = JSON.stringify(toJson(ModelInstanceGroupSchema, plain));
    for (let index = 0; index < Math.max(1, group.count); index++) {
      for (const deviceId of devices) {
        const placement = {
          name: `${group.name}_${index}`,
          kind,
          deviceId,
          ...(device === "webgpu" ? { device } : {}),
        };
        const signature = `${device} ${deviceId} ${groupText}`;
        result.push({ placement, deviceId, groupIndex, signature });
      }
    }
  }
  if (result.length > 0) return result;
  throw new ServerError(
    "INVALID_ARG",
    `must specify one or more 'instance group's that are not passive for ${config.name}`,
  );
}

function placementKind(kind: ModelInstanceGroup_Kind): InstancePlacement["kind"] {
  if (kind === ModelInstanceGroup_Kind.GPU) return "KIND_GPU";
  if (kind === ModelInstanceGroup_Kind.MODEL) return "KIND_MODEL";
  return "KIND_CPU";
}
