import type { Backend } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";

/** Finds a backend by name; undefined for a name nobody knows. The table of them lives outside the core. */
export type OpenBackend = (name: string) => Promise<Backend> | undefined;

/** The backends in use, each opened once, when the first model needs it. */
export class BackendTable implements AsyncDisposable {
  readonly #openBackend: OpenBackend;
  readonly #opened = new Map<string, Promise<Backend>>();

  constructor(openBackend: OpenBackend) {
    this.#openBackend = openBackend;
  }

  /** The backend of a name, undefined when nobody knows it. @throws ServerError when it cannot be opened. */
  async open(name: string): Promise<Backend | undefined> {
    const known = this.#opened.get(name);
    if (known !== undefined) return await known;
    const opening = this.#openBackend(name);
    if (opening === undefined) return undefined;
    this.#opened.set(name, opening);
    try {
      return await opening;
    } catch (error) {
      // A missing library may be there at the next try.
      this.#opened.delete(name);
      throw ServerError.from(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const opened = [...this.#opened.values()];
    this.#opened.clear();
    for (const opening of opened) await (await opening)[Symbol.asyncDispose]();
  }
}
