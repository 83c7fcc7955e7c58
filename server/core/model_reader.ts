import { ServerError } from "../../proto/status.ts";
import { composingModels } from "./ensemble/composing_models.ts";
import type { LoadSlots } from "./load_slots.ts";
import type { Log } from "./log.ts";
import type { ModelRegistry } from "./model_registry.ts";
import {
  DUPLICATE_MODEL_REASON,
  type ModelRepository,
  type RepositoryModel,
} from "./model_repository.ts";
import type { ModelOverride } from "./override_files.ts";

/** What reading models works with. */
export interface ModelReaderParts {
  readonly registry: ModelRegistry;
  readonly repository: ModelRepository;
  readonly log: Log;
  /** Shared with what loads versions. */
  readonly slots: LoadSlots;
}

/** How to load. */
export interface LoadOptions {
  /** What came with the request. */
  readonly override?: ModelOverride | undefined;
  /** What cannot be loaded is remembered as a model that should serve. */
  readonly isStart?: boolean;
  /** The same, unless it serves as it was before. */
  readonly isPoll?: boolean;
  /** A model asked for it, and may be held up by it. */
  readonly isCall?: boolean | undefined;
}

/** A directory that is a model, but of which the version policy leaves nothing: told like a version that failed. */
const NO_VERSION = "at least one version must be available";

/** Reads models from the repository, with those they are composed of, and remembers which could not be read. */
export class ModelReader {
  readonly #parts: ModelReaderParts;

  constructor(parts: ModelReaderParts) {
    this.#parts = parts;
  }

  /**
   * Reads a model and all it is composed of, by name; parts that cannot be read are left out.
   * @throws ServerError, in the words of a load request, when the model itself cannot be read.
   */
  async readAll(name: string, options: LoadOptions): Promise<Map<string, RepositoryModel>> {
    const main = await this.#read(name, options);
    const sources = new Map([[name, main]]);
    for (const { config } of sources.values()) {
      const parts = composingModels(config).filter((part) => !sources.has(part));
      const read = await Promise.all(parts.map((part) => this.#readPart(part)));
      for (const source of read) if (source !== undefined) sources.set(source.name, source);
    }
    return sources;
  }

  async #readPart(name: string): Promise<RepositoryModel | undefined> {
    const { repository, log } = this.#parts;
    try {
      return await this.#parts.slots.run(() => repository.read(name));
    } catch (error) {
      const { code, message } = ServerError.from(error);
      if (code !== "NOT_FOUND") log.error(`Poll failed for model directory '${name}': ${message}`);
      return undefined;
    }
  }

  async #read(name: string, options: LoadOptions): Promise<RepositoryModel> {
    const { registry, repository, log } = this.#parts;
    try {
      const source = await this.#parts.slots.run(() => repository.read(name, options.override));
      registry.setReadFailure(name, undefined);
      return source;
    } catch (error) {
      const failure = ServerError.from(error);
      log.error(`Poll failed for model directory '${name}': ${failure.message}`);
      // A name without any directory is nobody's model, and what a request asks for is the client's matter.
      if (failure.code !== "NOT_FOUND" && this.remembers(name, options)) {
        this.noteFailure(name, failure, options);
      }
      throw readError(name, failure);
    }
  }

  /** True when a model should serve, and does not. */
  remembers(name: string, { isStart, isPoll }: LoadOptions): boolean {
    if (isStart === true) return true;
    return isPoll === true && this.#parts.registry.get(name)?.latest === undefined;
  }

  /** Notes why a model that should serve cannot. */
  noteFailure(name: string, failure: ServerError, { isPoll = false }: LoadOptions = {}): void {
    const isDuplicate = failure.message === DUPLICATE_MODEL_REASON;
    const reason = isDuplicate ? failure.message : failure.toReason();
    this.#parts.registry.setReadFailure(name, {
      reason,
      isDuplicate,
      sparesReadiness: isPoll,
      hasNoVersion: failure.message.startsWith(NO_VERSION),
    });
  }
}

/** The error of a load request whose directory could not be read (http.md §5.2), with what is wrong. */
function readError(name: string, { message, cause }: ServerError): ServerError {
  if (message.startsWith(NO_VERSION)) {
    return new ServerError("INVALID_ARG", `load failed for model '${name}': ${message}\n`, {
      cause,
    });
  }
  const start = `failed to load '${name}', failed to poll from model repository`;
  return new ServerError("INTERNAL", message.startsWith(start) ? message : `${start}: ${message}`, {
    cause,
  });
}
