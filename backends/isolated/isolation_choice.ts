import { ServerError } from "../../proto/status.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  BackendSettings,
  Devices,
  InstancePreference,
  KindOffer,
  ModelSource,
} from "../backend.ts";
import { CPU_OFFER } from "../device_list.ts";

/** Key of `--backend-config` and of the `parameters` of a configuration. */
const KEY = "isolation";

/** Where the instances of a model are. */
type Isolation = "none" | "process";

/** What it takes to open a backend in this process or in others. */
export interface IsolationChoiceOptions {
  readonly name: string;
  /** `--backend-directory`. */
  readonly directory: string;
  readonly openHere: () => Promise<Backend>;
  /** Why its instances cannot be in processes of their own; absent = they can. */
  readonly refusal?: string;
}

/**
 * A backend whose models are in this process or, by `isolation=process`, in others: as the settings say, or the
 * parameter of the model (docs/isolation.md).
 */
export class IsolationChoice implements Backend {
  readonly name: string;
  readonly preference: InstancePreference;
  readonly kinds?: (devices: Devices, source?: ModelSource) => Promise<readonly KindOffer[]>;
  readonly usesSecondaryDevices: boolean;
  readonly #context: BackendContext;
  readonly #options: IsolationChoiceOptions;
  readonly #default: Isolation;
  readonly #opened: Map<Isolation, Promise<Backend>>;

  private constructor(
    context: BackendContext,
    options: IsolationChoiceOptions,
    [isolation, first]: readonly [Isolation, Backend],
  ) {
    this.#context = context;
    this.#options = options;
    this.#default = isolation;
    this.#opened = new Map([[isolation, Promise.resolve(first)]]);
    this.name = first.name;
    this.preference = first.preference;
    this.usesSecondaryDevices = first.usesSecondaryDevices ?? false;
    if (first.kinds === undefined) return;
    this.kinds = async (devices, source) => {
      const backend = source === undefined ? first : await this.#choose(source);
      return await backend.kinds?.(devices, source) ?? [CPU_OFFER];
    };
  }

  /** @throws ServerError INVALID_ARG for a setting that cannot be, and what opening the backend throws. */
  static async open(
    context: BackendContext,
    options: IsolationChoiceOptions,
  ): Promise<IsolationChoice> {
    const isolation = defaultIsolation(context, options);
    const first = isolation === "process"
      ? await openApart(context, options)
      : await options.openHere();
    return new IsolationChoice(context, options, [isolation, first]);
  }

  async autoComplete(source: ModelSource): Promise<void> {
    await (await this.#choose(source)).autoComplete(source);
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    return await (await this.#choose(source)).openModel(source);
  }

  /** @throws ServerError INVALID_ARG for a parameter that cannot be, UNSUPPORTED for one that is not served. */
  async #choose({ name, config }: ModelSource): Promise<Backend> {
    const text = config.parameters[KEY]?.stringValue;
    const wanted = text === undefined || text === ""
      ? this.#default
      : readIsolation(text, `parameter '${KEY}' of model '${name}'`);
    const { refusal, openHere } = this.#options;
    if (wanted === "process" && refusal !== undefined) {
      throw new ServerError(
        "UNSUPPORTED",
        `model '${name}' cannot have ${KEY}=process: ${refusal}`,
      );
    }
    const known = this.#opened.get(wanted);
    if (known !== undefined) return await known;
    const opening = wanted === "process" ? openApart(this.#context, this.#options) : openHere();
    this.#opened.set(wanted, opening);
    try {
      return await opening;
    } catch (reason) {
      // The next load may have more luck.
      this.#opened.delete(wanted);
      throw reason;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const opening of this.#opened.values()) {
      const backend = await opening.catch(() => undefined);
      await backend?.[Symbol.asyncDispose]();
    }
  }
}

function defaultIsolation(
  { settings, log }: BackendContext,
  { name, refusal }: IsolationChoiceOptions,
): Isolation {
  const isolation = readIsolation(settings.get(KEY) ?? "none", `--backend-config '${KEY}'`);
  if (isolation === "none" || refusal === undefined) return isolation;
  log.warning(`backend '${name}' does not follow ${KEY}=process: ${refusal}`);
  return "none";
}

function readIsolation(text: string, what: string): Isolation {
  if (text === "process" || text === "none") return text;
  throw new ServerError("INVALID_ARG", `${what} must be 'process' or 'none', got '${text}'`);
}

async function openApart(
  context: BackendContext,
  { name, directory }: IsolationChoiceOptions,
): Promise<Backend> {
  const { IsolatedBackend } = await import("./isolated_backend.ts");
  const settings = withoutIsolation(context.settings);
  return await IsolatedBackend.open({ name, directory, settings }, context);
}

function withoutIsolation(settings: BackendSettings): BackendSettings {
  return new Map([...settings].filter(([key]) => key !== KEY));
}
