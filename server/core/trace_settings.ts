import { ServerError } from "../../proto/status.ts";
import type {
  ShownTraceSetting,
  TraceChange,
  TraceLevel,
  TraceOptions,
  TraceValues,
} from "./options_trace.ts";
import { TraceSetting, type TraceSink } from "./trace_setting.ts";

const LEVELS: readonly TraceLevel[] = ["TIMESTAMPS", "TENSORS"];

type OwnValues = { readonly [Key in keyof TraceValues]?: TraceValues[Key] };

/**
 * The trace settings: the global ones, and those of single models, which follow the global ones in every member that
 * they do not set themselves (observability.md §5.1).
 */
export class TraceSettings {
  readonly #options: TraceOptions;
  readonly #openSink: (values: TraceValues) => TraceSink;
  #ownGlobal: OwnValues = {};
  #global: TraceSetting;
  readonly #ownOfModels = new Map<string, OwnValues>();
  readonly #models = new Map<string, TraceSetting>();
  #isActive = false;

  /** @throws ServerError INVALID_ARG when the options cannot be traced by. */
  constructor(options: TraceOptions, openSink: (values: TraceValues) => TraceSink) {
    this.#options = options;
    this.#openSink = openSink;
    this.#check(options.values);
    this.#global = this.#open(options.values);
    this.#note();
  }

  /** False when every setting is OFF: the usual case, in which a request costs one look. */
  get isActive(): boolean {
    return this.#isActive;
  }

  /** The setting that a request for this model is traced by. */
  settingOf(model: string): TraceSetting {
    return this.#models.get(model) ?? this.#global;
  }

  /** `model` "" = the global setting. */
  show(model: string): ShownTraceSetting {
    const setting = this.settingOf(model);
    const { levels, rate, logFrequency } = setting.values;
    const { mode, file, openTelemetry } = this.#options;
    const shown: [string, readonly string[]][] = [
      ["trace_level", levels.length === 0 ? ["OFF"] : levels],
      ["trace_rate", [String(rate)]],
      ["trace_count", [String(setting.leftCount)]],
    ];
    if (mode === "triton") shown.push(["log_frequency", [String(logFrequency)]]);
    if (mode === "triton") shown.push(["trace_file", [file]]);
    shown.push(["trace_mode", [mode]]);
    if (mode === "triton") return shown;
    const byKey = Map.groupBy(openTelemetry.shown, ([key]) => key);
    for (const [key, entries] of byKey) shown.push([key, entries.map(([, value]) => value)]);
    return shown;
  }

  /**
   * Changes the setting of a model, or with "" the global one.
   * @throws ServerError INVALID_ARG with the texts of http.md §7; nothing has changed then.
   */
  update(model: string, change: TraceChange): void {
    const wanted = readChange(change);
    if (wanted.length === 0) return;
    const own = model === "" ? this.#ownGlobal : this.#ownOfModels.get(model) ?? {};
    const next: Record<string, unknown> = { ...own };
    for (const [key, value] of wanted) {
      if (value === undefined) delete next[key];
      else next[key] = value;
    }
    if (model === "") this.#updateGlobal(next);
    else this.#updateModel(model, next);
    this.#note();
  }

  #updateGlobal(own: OwnValues): void {
    const values = { ...this.#options.values, ...own };
    const followers = [...this.#ownOfModels].filter(([, each]) => Object.keys(each).length < 4);
    const all = [values, ...followers.map(([, each]) => ({ ...values, ...each }))];
    for (const each of all) this.#check(each);
    this.#ownGlobal = own;
    this.#global.retire();
    this.#global = this.#open(values);
    for (const [index, [name]] of followers.entries()) this.#replace(name, all[index + 1]!);
  }

  #updateModel(model: string, own: OwnValues): void {
    const values = { ...this.#options.values, ...this.#ownGlobal, ...own };
    this.#check(values);
    if (Object.keys(own).length > 0) {
      this.#ownOfModels.set(model, own);
      this.#replace(model, values);
      return;
    }
    this.#ownOfModels.delete(model);
    this.#models.get(model)?.retire();
    this.#models.delete(model);
  }

  #replace(model: string, values: TraceValues): void {
    this.#models.get(model)?.retire();
    this.#models.set(model, this.#open(values));
  }

  #open(values: TraceValues): TraceSetting {
    return new TraceSetting(values, this.#openSink(values));
  }

  #check({ levels, rate }: TraceValues): void {
    if (levels.length === 0 || this.#options.mode !== "triton") return;
    if (rate === 0) throw invalidSetting("sample rate must be non-zero");
    if (this.#options.file === "") throw invalidSetting("trace file name is not given");
  }

  #note(): void {
    this.#isActive = [this.#global, ...this.#models.values()].some(({ isOn }) => isOn);
  }

  /** Nothing is traced any more. */
  close(): void {
    this.#isActive = false;
    for (const setting of [this.#global, ...this.#models.values()]) setting.retire();
  }
}

/** The members that change, with their new values; undefined = clear. */
function readChange(change: TraceChange): [keyof TraceValues, unknown][] {
  const result: [keyof TraceValues, unknown][] = [];
  for (const [key, value] of Object.entries(change) as [keyof TraceChange, unknown][]) {
    if (value === undefined) continue;
    if (value === null) result.push([key, undefined]);
    else if (key === "levels") result.push([key, readLevels(value as readonly string[])]);
    else result.push([key, value]);
  }
  return result;
}

function readLevels(names: readonly string[]): readonly TraceLevel[] {
  const levels = LEVELS.filter((level) => names.includes(level));
  if (names.includes("OFF") && levels.length > 0) {
    throw new ServerError("INVALID_ARG", "Expect only one trace level 'OFF' is specified");
  }
  return levels;
}

function invalidSetting(reason: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `Attempting to set invalid trace setting :${reason}`,
  );
}
