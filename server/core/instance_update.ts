import { clone, equals } from "@bufbuild/protobuf";
import type { Backend } from "../../backends/backend.ts";
import { type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { checkInstanceGroups, configError } from "../../proto/model_config.ts";
import { isEnsemble, normalizeInstanceGroups } from "../../proto/model_config_normalize.ts";
import { countFallbacks, tellChoice } from "./device_loading.ts";
import { chooseKinds, type KindSettings } from "./instance_kinds.ts";
import type { InstanceUpdate } from "./instance_set.ts";
import type { Log } from "./log.ts";
import type { Model } from "./model.ts";
import type { RepositoryModel } from "./model_repository.ts";
import { LABELS_PARAMETER } from "./version_labels.ts";

/** A version that serves and what it was loaded from. */
export interface ServingVersion {
  readonly model: Model;
  readonly source: RepositoryModel;
}

/**
 * True when a version can stay as it is loaded, but for its instances (management.md §7): its files are the same, and of
 * the configuration only instance groups, version policy and version labels have changed.
 */
export function mayStay({ model, source: before }: ServingVersion, after: RepositoryModel) {
  if (model.instanceSet === undefined || isEnsemble(after.config)) return false;
  if (model.hasGivenUp) return false;
  // What agents or requests bring is in a folder of its own each time.
  if (before.hold !== undefined || after.hold !== undefined) return false;
  if (before.directory !== after.directory) return false;
  const [was, is] = [before.files, after.files];
  if (was === undefined || is === undefined || was.others !== is.others) return false;
  const files = is.versions.get(model.version);
  if (files === undefined || was.versions.get(model.version) !== files) return false;
  return equals(ModelConfigSchema, comparable(before.config), comparable(after.config));
}

/**
 * Prepares the instances that a version shall have from now on; `commit` of the result is the change.
 * @throws ServerError; nothing has changed then.
 */
export async function prepareUpdate(
  model: Model,
  source: RepositoryModel,
  { backend, log, ...settings }: KindSettings & { readonly backend: Backend; readonly log: Log },
): Promise<InstanceUpdate> {
  const config = clone(ModelConfigSchema, source.config);
  const { version } = model;
  const versionDirectory = `${source.directory}/${version}`;
  const named = { name: config.name, version, modelDirectory: source.directory, versionDirectory };
  // Where the version could not be loaded, no further instance of it will run.
  const { failedDevices: failed } = model;
  const choice = await chooseKinds({ ...named, config }, backend, { ...settings, failed });
  normalizeInstanceGroups(config, backend.preference);
  const issues = checkInstanceGroups(config, choice.machine);
  if (issues.length > 0) throw configError(issues, source.positions);
  const update = await model.instanceSet!.prepare(config, source.positions);
  tellChoice(choice, log);
  return {
    addedCount: update.addedCount,
    removedCount: update.removedCount,
    commit: () => {
      const removed = update.commit();
      const { instanceGroup, versionPolicy, parameters } = config;
      Object.assign(model.config, { instanceGroup, versionPolicy, parameters });
      model.statistics.kindFallbackCount = countFallbacks({ failed, choice });
      return removed;
    },
    [Symbol.asyncDispose]: () => update[Symbol.asyncDispose](),
  };
}

/** The configuration without what may change while a version serves. */
function comparable(config: ModelConfig): ModelConfig {
  const plain = clone(ModelConfigSchema, config);
  plain.instanceGroup = [];
  delete plain.versionPolicy;
  delete plain.parameters[LABELS_PARAMETER];
  return plain;
}
