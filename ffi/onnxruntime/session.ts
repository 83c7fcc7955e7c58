import { NativeHandle, type NativePointer } from "../handle.ts";
import { cString, OutParameter, whileHolding } from "../memory.ts";
import { notNull, type OrtEnvironment } from "./environment.ts";
import { checkStatus } from "./error.ts";
import { OrtSessionOptions, type SessionSettings } from "./session_options.ts";
import { readSignature, type SessionSignature } from "./signature.ts";

/** A loaded model. Any number of runs may be in flight on it; it must outlive them. */
export class OrtSession extends NativeHandle {
  readonly environment: OrtEnvironment;
  readonly signature: SessionSignature;

  private constructor(environment: OrtEnvironment, pointer: NativePointer) {
    const { calls } = environment;
    super(pointer, (session) => calls.ReleaseSession(session));
    this.environment = environment;
    this.signature = readSignature(environment, pointer);
  }

  /**
   * Loads a model file (a path, so that external data beside it is found) or the bytes of one, on the blocking pool.
   * @throws OrtError
   */
  static async open(
    environment: OrtEnvironment,
    model: string | Uint8Array<ArrayBuffer>,
    settings: SessionSettings = {},
  ): Promise<OrtSession> {
    const { calls } = environment;
    using options = await OrtSessionOptions.create(environment, settings);
    const out = new OutParameter();
    const environmentPointer = environment.pointer;
    const source = typeof model === "string" ? cString(model) : model;
    const status = await whileHolding(
      [environment, options, source, out.cell],
      () =>
        typeof model === "string"
          ? calls.CreateSession(environmentPointer, source, options.pointer, out.cell)
          : calls.CreateSessionFromArray(
            environmentPointer,
            source,
            BigInt(source.byteLength),
            options.pointer,
            out.cell,
          ),
    );
    checkStatus(calls, status);
    return new OrtSession(environment, notNull(out.pointer, "OrtSession"));
  }
}

/** `OrtRunOptions`: through it a run in flight can be stopped from another place. */
export class OrtRunOptions extends NativeHandle {
  readonly #environment: OrtEnvironment;

  private constructor(pointer: NativePointer, environment: OrtEnvironment) {
    const { calls } = environment;
    super(pointer, (options) => calls.ReleaseRunOptions(options));
    this.#environment = environment;
  }

  static create(
    environment: OrtEnvironment,
    entries: Readonly<Record<string, string>> = {},
  ): OrtRunOptions {
    const { calls } = environment;
    const out = new OutParameter();
    checkStatus(calls, calls.CreateRunOptions(out.cell));
    const options = new OrtRunOptions(notNull(out.pointer, "OrtRunOptions"), environment);
    try {
      for (const [key, value] of Object.entries(entries)) {
        checkStatus(calls, calls.AddRunConfigEntry(options.pointer, cString(key), cString(value)));
      }
    } catch (error) {
      options[Symbol.dispose]();
      throw error;
    }
    return options;
  }

  /** Makes the run in flight, and all later ones until {@linkcode rearm}, fail as soon as a node ends. */
  terminate(): void {
    const { calls } = this.#environment;
    checkStatus(calls, calls.RunOptionsSetTerminate(this.pointer));
  }

  /** Takes {@linkcode terminate} back. */
  rearm(): void {
    const { calls } = this.#environment;
    checkStatus(calls, calls.RunOptionsUnsetTerminate(this.pointer));
  }
}
