import { ServerError } from "../../proto/status.ts";
import type { ModelIndexEntry, ModelState } from "./inference_api.ts";
import type { Model } from "./model.ts";
import { splitModelId } from "./model_id.ts";
import type { RepositoryModel } from "./model_repository.ts";
import { findLabel, isLabelText, type VersionLabels } from "./version_labels.ts";

/** What is known of one version of a model. */
export interface VersionEntry {
  readonly version: number;
  state: ModelState;
  /** Why the version is not served; "" when there is nothing to say. */
  reason: string;
  /** The loaded version while the state is READY or UNLOADING. */
  model: Model | undefined;
  /** What `model` was loaded from. */
  source: RepositoryModel | undefined;
  /** How long its last load took, ms. */
  loadMs: number;
}

/** Why a directory is no model. */
export interface ReadFailure {
  readonly reason: string;
  /** The name lies in several repositories: shown with a state, unlike other failures (management.md §3). */
  readonly isDuplicate: boolean;
  /** It came while the server served: a bad copy must not take the server away from its clients. */
  readonly sparesReadiness?: boolean;
  /** It is a model, but its version policy leaves no version. */
  readonly hasNoVersion?: boolean;
}

/** What is known of one model. */
export class ModelEntry {
  /** What it is kept under: its name, with namespacing also its repository. */
  readonly name: string;
  /** What clients call it. */
  readonly modelName: string;
  /** Names of its versions; undefined = it has none. */
  labels: VersionLabels | undefined;
  /** Its folder is gone: it is not listed any more. */
  isVanished = false;
  /** What its READY versions were loaded from (`RepositoryModel.stamp`). */
  stamp: string | undefined;
  /** Loaded only because an ensemble needs it. */
  isImplicit = false;
  readonly #versions = new Map<number, VersionEntry>();
  #latest: Model | undefined;
  #ensemble: RepositoryModel | undefined;

  constructor(name: string) {
    this.name = name;
    this.modelName = splitModelId(name).name;
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
      entry = {
        version,
        state: "UNKNOWN",
        reason: "",
        model: undefined,
        source: undefined,
        loadMs: 0,
      };
      this.#versions.set(version, entry);
    }
    Object.assign(entry, change);
    if (change.state === "LOADING" || change.state === "READY") this.isVanished = false;
    this.#latest = this.ready().at(-1);
    return entry;
  }
}

/** Every model the server knows by name and version; the answers of http.md §3 for those it does not. */
export class ModelRegistry {
  readonly #entries = new Map<string, ModelEntry>();
  readonly #readFailures = new Map<string, ReadFailure>();
  readonly #vanished = new Set<string>();
  readonly #hasNamespaces: boolean;

  /** With namespacing, names stand for repository and name (`modelId`), and clients say the name alone. */
  constructor(hasNamespaces = false) {
    this.#hasNamespaces = hasNamespaces;
  }

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
    const entry = this.find(name);
    if (versionText === "") {
      const latest = entry?.latest;
      if (latest !== undefined) return latest;
      if (entry !== undefined) throw unknownModel(name, "has no available versions");
      throw this.#unknown(name);
    }
    const version = entry?.labels === undefined
      ? parseVersionDigits(versionText)
      : labelledVersion(entry, versionText);
    if (entry === undefined) throw this.#unknown(name);
    const known = entry.version(Number(version));
    if (known === undefined) throw unknownModel(name, `version ${version} is not found`);
    if (known.state !== "READY" || known.model === undefined) {
      throw unknownModel(name, `version ${version} is not at ready state`, "UNAVAILABLE");
    }
    return known.model;
  }

  #unknown(name: string): ServerError {
    if (this.#readFailures.get(name)?.hasNoVersion) {
      return unknownModel(name, "has no available versions");
    }
    return unknownModel(name, "is not found", this.#hasNamespaces ? "INVALID_ARG" : "NOT_FOUND");
  }

  /**
   * The model that clients mean by a name. With namespacing several may have it, but then only one may serve.
   * @throws ServerError INVALID_ARG when it does not say which (management.md §10).
   */
  find(name: string): ModelEntry | undefined {
    const entry = this.#entries.get(name);
    if (entry !== undefined || !this.#hasNamespaces) return entry;
    const known = [...this.#entries.values()].filter(({ modelName, isVanished }) =>
      modelName === name && !isVanished
    );
    const serving = known.filter(({ latest }) => latest !== undefined);
    if (serving.length > 1) {
      throw new ServerError(
        "INVALID_ARG",
        `There are ${serving.length} identifiers of model '${name}' in global map, model namespace ` +
          `must be provided to resolve ambiguity.`,
      );
    }
    return serving[0] ?? known[0];
  }

  /** Everything kept under a name; more than one only with namespacing. */
  findAll(name: string): ModelEntry[] {
    const entry = this.#entries.get(name);
    if (entry !== undefined || !this.#hasNamespaces) return entry === undefined ? [] : [entry];
    return [...this.#entries.values()].filter(({ modelName }) => modelName === name);
  }

  /**
   * The version that a text means which is no number: a label; undefined when the model has none at all.
   * @throws ServerError NOT_FOUND for a label that a model with labels does not have.
   */
  versionOfLabel(name: string, label: string): string | undefined {
    const entry = this.find(name);
    return entry?.labels === undefined ? undefined : labelledVersion(entry, label);
  }

  /** The version that a text means, which may be a label. @throws ServerError INVALID_ARG when it is neither. */
  parseVersion(name: string, text: string): number {
    const entry = this.find(name);
    return Number(
      entry?.labels === undefined ? parseVersionDigits(text) : labelledVersion(entry, text),
    );
  }

  /** Notes that the folder of a model is gone; of very many of those the oldest are forgotten. */
  setVanished(name: string): void {
    const entry = this.#entries.get(name);
    if (entry === undefined) return;
    entry.isVanished = true;
    this.#vanished.delete(name);
    this.#vanished.add(name);
    for (const oldest of this.#vanished) {
      if (this.#vanished.size <= VANISHED_MAX) break;
      const old = this.#entries.get(oldest);
      // It still finishes requests: it is forgotten when the next one goes.
      if (old?.isVanished && old.loaded().length > 0) continue;
      this.#vanished.delete(oldest);
      if (old?.isVanished) this.#entries.delete(oldest);
    }
  }

  /** True when no known model has a version that should be served and is not (management.md §6). */
  isEveryModelReady(): boolean {
    for (const { sparesReadiness } of this.#readFailures.values()) {
      if (sparesReadiness !== true) return false;
    }
    for (const entry of this.#entries.values()) {
      // An ensemble whose models did not fit never had a version; `readFailure` tells whether it should serve.
      // What is added while the server serves, or on its way out, takes nothing away from it (scenario D36).
      const isFine = entry.versions().every(({ state, reason }) =>
        state === "READY" || state === "LOADING" || state === "UNLOADING" ||
        (state === "UNAVAILABLE" && reason === "unloaded")
      );
      if (!isFine) return false;
    }
    return true;
  }

  /** The repository index (management.md §3.1), with every directory of the repositories. */
  index(directories: readonly string[], readyOnly: boolean): ModelIndexEntry[] {
    const isListed = (entry: ModelEntry) => !entry.isVanished || entry.loaded().length > 0;
    const names = new Set([
      ...directories,
      ...[...this.#entries.values()].filter(isListed).map(({ name }) => name),
      ...this.#readFailures.keys(),
    ]);
    return [...names].sort().flatMap((name) => this.#indexOf(name, readyOnly));
  }

  #indexOf(id: string, readyOnly: boolean): ModelIndexEntry[] {
    const { name } = splitModelId(id);
    const failure = this.#readFailures.get(id);
    if (failure?.isDuplicate === true && !this.#entries.get(id)?.latest) {
      return readyOnly ? [] : [{ name, state: "UNAVAILABLE", reason: failure.reason }];
    }
    const versions = this.#entries.get(id)?.versions() ?? [];
    const rows = versions
      .filter(({ state }) => !readyOnly || state === "READY")
      .map(({ version, state, reason }): ModelIndexEntry => ({
        name,
        version: String(version),
        state,
        ...(reason === "" ? {} : { reason }),
      }));
    if (versions.length > 0 || readyOnly) return rows;
    return [failure === undefined ? { name } : { name, reason: failure.reason }];
  }
}

/** Models whose folders are gone that are still known by name. */
const VANISHED_MAX = 1000;

/** What a text means for a model with labels: digits of a version. */
function labelledVersion(entry: ModelEntry, text: string): string {
  if (!isLabelText(text)) return parseVersionDigits(text);
  const version = findLabel(entry.labels!, text);
  if (version !== "latest" && version !== undefined) return String(version);
  const name = entry.modelName;
  if (version === undefined) {
    const labels = [...entry.labels!.keys(), "latest"].join(", ");
    throw unknownModel(name, `has no version label '${text}', its labels are ${labels}`);
  }
  if (entry.latest === undefined) throw unknownModel(name, "has no available versions");
  return entry.latest.versionText;
}

const MAX_INT64 = 2n ** 63n - 1n;
const MAX_INT64_DIGITS = 19;

/** Digits of a version without leading zeros, read as the reference does: an integer in the range of int64, not negative. */
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
  code: "NOT_FOUND" | "UNAVAILABLE" | "INVALID_ARG" = "NOT_FOUND",
): ServerError {
  return new ServerError(code, `Request for unknown model: '${name}' ${what}`);
}
