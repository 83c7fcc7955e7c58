import type { Headers } from "./transport.ts";

/** Header fields as they came; look-up is a scan, which is fastest for the dozen fields of a request. */
export class HeaderList implements Headers {
  readonly #fields: readonly (readonly [string, string])[];

  constructor(fields: readonly (readonly [string, string])[]) {
    this.#fields = fields;
  }

  get(name: string): string | undefined {
    for (const field of this.#fields) {
      if (field[0] === name) return field[1];
    }
    return undefined;
  }

  entries(): readonly (readonly [string, string])[] {
    return this.#fields;
  }
}
