import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { DirectoryEntry } from "./model_repository_files.ts";

/** Folders of a model that are no versions and no mistake. */
const OTHER_FOLDERS: readonly string[] = ["configs", "initial_state", "warmup"];

/** True for the name of a folder that belongs to a model and is no version. */
export function isModelFolder(name: string): boolean {
  return OTHER_FOLDERS.includes(name);
}

/** What the folders of a model are. */
export interface VersionFolders {
  /** Ascending. */
  readonly versions: readonly number[];
  /** Folders that look like nothing the server knows. */
  readonly ignored: readonly string[];
}

/** Sorts the folders of a model into versions, plain decimal numbers, and others (config.md §1). */
export function findVersions(entries: readonly DirectoryEntry[]): VersionFolders {
  const versions: number[] = [];
  const ignored: string[] = [];
  for (const { name, isDirectory } of entries) {
    if (!isDirectory) continue;
    const version = /^(?:0|[1-9][0-9]*)$/.test(name) ? Number(name) : NaN;
    if (Number.isSafeInteger(version)) versions.push(version);
    else if (!OTHER_FOLDERS.includes(name)) ignored.push(name);
  }
  return { versions: versions.sort((left, right) => left - right), ignored };
}

/** Versions that the policy serves, ascending, and those it names without a folder. */
export function selectVersions(
  versions: readonly number[],
  config: ModelConfig,
): { selected: number[]; missing: bigint[] } {
  const choice = config.versionPolicy?.policyChoice;
  if (choice?.case === "latest") {
    const count = choice.value.numVersions;
    return { selected: count === 0 ? [] : versions.slice(-count), missing: [] };
  }
  if (choice?.case === "specific") {
    const listed = new Set(choice.value.versions);
    const selected = versions.filter((version) => listed.has(BigInt(version)));
    const missing = [...listed].filter((version) => !versions.includes(Number(version)));
    return { selected, missing };
  }
  return { selected: [...versions], missing: [] };
}
