import { ServerError } from "../../proto/status.ts";
import type { ModelIndexEntry, ModelState } from "./inference_api.ts";
import type { Model } from "./model.ts";
import type { RepositoryModel } from "./model_repository.ts";

/** What is known of one version of a model. */
export interface VersionEntry {
  readonly version: number;
  state: ModelState;
  /** Why the version is not served; "" when there is nothing to say. */
  reason: string;
  /** The loaded version while the state is READY or UNLOADING. */
  model: Model | undefined;
  /** How long its last load took, ms. */
  loadMs: number;
}

/** Why a directory is no model. */
export interface ReadFailure {
  readonly reason: string;
  /** The name lies in several repositories: shown with a state, unlike other failures (management.md §3). */
  readonly isDuplicate: boolean;
}

/** What is known of one model. */
export class ModelEntry {
  readonly name: string;
  /** What its READY versions were loaded from (`RepositoryModel.stamp`). */
  stamp: string | undefined;
  /** Loaded only because an ensemble needs it. */
  isImplicit = false;
  readonly #versions = new Map<number, VersionEntry>();
  #latest: Model | undefined;
  #ensemble: RepositoryModel | undefined;

  constructor(name: string) {
    this.name = name;
  }

  /** Of an ensemble that serves, or should as soon as it can: what it is bound from, again and again. */
  get ensemble(): RepositoryModel | undefined {
    return this.#ensemble;
  }

  set ensemble(source: RepositoryModel | undefined) {
    source?.hold?.retain();
    const before = this.#ensemble;
    this.#ensemble = source;
    void before?.hold?.release();
  }

  /** The highest READY version. */
  get latest(): Model | undefined {
    return this.#latest;
  }

  version(version: number): VersionEntry | undefined {
    return this.#versions.get(version);
  }

  /** Every known version, ascending. */
  versions(): VersionEntry[] {
    return [...this.#versions.values()].sort((a, b) => a.version - b.version);
  }

  /** READY versions, ascending. */
  ready(): Model[] {
    return this.versions().flatMap(({ state, model }) =>
      state === "READY" && model !== undefined ? [model] : []
    );
  }

  /** Versions that are loaded, READY or still finishing requests, ascending. */
  loaded(): Model[] {
    return this.versions().flatMap(({ model }) => model ?? []);
  }

  /** Notes a new state of a version. */
  set(version: number, change: Partial<Omit<VersionEntry, "version">>): VersionEntry {
    let entry = this.#versions.get(version);
    if (entry === undefined) {
      entry = { version, state: "UNKNOWN", reason: "", model: undefined, loadMs: 0 };
      this.#versions.set(version, entry);
    }
    Object.assign(entry, change);
    this.#latest = this.ready().at(-1);
    return entry;
  }
}

/** Every model the server knows by name and version; the answers of http.md §3 for those it does not. */
export class ModelRegistry {
  readonly #entries = new Map<string, ModelEntry>();
  readonly #readFailures = new Map<string, ReadFailure>();

  get(name: string): ModelEntry | undefined {
    return this.#entries.get(name);
  }

  getOrCreate(name: string): ModelEntry {
    let entry = this.#entries.get(name);
    if (entry === undefined) this.#entries.set(name, entry = new ModelEntry(name));
    return entry;
  }

  /** Every known model, sorted by name. */
  entries(): ModelEntry[] {
    return [...this.#entries.values()].sort((a, b) => a.name < b.name ? -1 : 1);
  }

  /** Notes why a directory that should serve could not be read as a model; undefined = it could. */
  setReadFailure(name: string, failure: ReadFailure | undefined): void {
    if (failure === undefined) this.#readFailures.delete(name);
    else this.#readFailures.set(name, failure);
  }

  /** Why the directory of a model could not be read; undefined = it could, or nobody tried. */
  readFailure(name: string): ReadFailure | undefined {
    return this.#readFailures.get(name);
  }

  /**
   * The version a client means.
   * @throws ServerError NOT_FOUND, UNAVAILABLE or, for a text that is no version, INVALID_ARG.
   */
  resolve(name: string, versionText: string): Model {
    const entry = this.#entries.get(name);
    if (versionText === "") {
      const latest = entry?.latest;
      if (latest !== undefined) return latest;
      throw unknownModel(name, entry === undefined ? "is not found" : "has no available versions");
    }
    const version = parseVersionDigits(versionText);
    if (entry === undefined) throw unknownModel(name, "is not found");
    const known = entry.version(Number(version));
    if (known === undefined) throw unknownModel(name, `version ${version} is not found`);
    if (known.state !== "READY" || known.model === undefined) {
      throw unknownModel(name, `version ${version} is not at ready state`, "UNAVAILABLE");
    }
    return known.model;
  }

  /** True when no known model has a version that should be served and is not (management.md §6). */
  isEveryModelReady(): boolean {
    if (this.#readFailures.size > 0) return false;
    for (const entry of this.#entries.values()) {
      // An ensemble whose models did not fit never had a version; `readFailure` tells whether it should serve.
      const isFine = entry.versions().every(({ state, reason }) =>
        state === "READY" || (state === "UNAVAILABLE" && reason === "unloaded")
      );
      if (!isFine) return false;
    }
    return true;
  }

  /** The repository index (management.md §3.1), with every directory of the repositories. */
  index(directories: readonly string[], readyOnly: boolean): ModelIndexEntry[] {
    const names = new Set([
      ...directories,
      ...this.#entries.keys(),
      ...this.#readFailures.keys(),
    ]);
    return [...names].sort().flatMap((name) => this.#indexOf(name, readyOnly));
  }

  #indexOf(name: string, readyOnly: boolean): ModelIndexEntry[] {
    const versions = this.#entries.get(name)?.versions() ?? [];
    const rows = versions
      .filter(({ state }) => !readyOnly || state === "READY")
      .map(({ version, state, reason }): ModelIndexEntry => ({
        name,
        version: String(version),
        state,
        ...(reason === "" ? {} : { reason }),
      }));
    if (versions.length > 0 || readyOnly) return rows;
    const failure = this.#readFailures.get(name);
    if (failure === undefined) return [{ name }];
    const { reason, isDuplicate } = failure;
    return isDuplicate ? [{ name, state: "UNAVAILABLE", reason }] : [{ name, reason }];
  }
}

const MAX_INT64 = 2n ** 63n - 1n;
const MAX_INT64_DIGITS = 19;

/** Reads a version as the reference does: a decimal integer in the range of int64, not negative. */
export function parseVersion(text: string): number {
  return Number(parseVersionDigits(text));
}

/** The same as digits without leading zeros: large numbers are exact only so. */
function parseVersionDigits(text: string): string {
  // One way to match only: clients choose the text, and its length.
  const match = /^\s*([+-]?)(\d+)$/.exec(text);
  const digits = match === null ? "" : withoutLeadingZeros(match[2]!);
  if (match === null || isBeyondInt64(digits)) {
    throw new ServerError(
      "INVALID_ARG",
      `failed to get model version from specified version string '${text.slice(0, 100)}' ` +
        `(details: stol), version should be an integral value > 0`,
    );
  }
  if (match[1] === "-") {
    throw new ServerError(
      "INVALID_ARG",
      `invalid model version specified '${
        text.slice(0, 100)
      }' , version should be an integral value > 0`,
    );
  }
  return digits;
}

function withoutLeadingZeros(digits: string): string {
  let start = 0;
  while (start < digits.length - 1 && digits[start] === "0") start++;
  return digits.slice(start);
}

/** Clients choose the length: digits without end must not be made a number. */
function isBeyondInt64(digits: string): boolean {
  return digits.length > MAX_INT64_DIGITS || BigInt(digits) > MAX_INT64;
}

function unknownModel(
  name: string,
  what: string,
  code: "NOT_FOUND" | "UNAVAILABLE" = "NOT_FOUND",
): ServerError {
  return new ServerError(code, `Request for unknown model: '${name}' ${what}`);
}
