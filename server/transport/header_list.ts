import type { Headers } from "./transport.ts";

/** Header fields as they came; look-up is a scan, which is fastest for the dozen fields of a request. */
export class HeaderList implements Headers {
  readonly #fields: readonly (readonly [string, string])[];
  readonly #spelledNames: readonly string[] | undefined;

  /** Names in lower case; `spelledNames` tells how they were sent, where that may differ. */
  constructor(
    fields: readonly (readonly [string, string])[],
    spelledNames?: readonly string[],
  ) {
    this.#fields = fields;
    this.#spelledNames = spelledNames;
  }

  get(name: string): string | undefined {
    for (const field of this.#fields) {
      if (field[0] === name) return field[1];
    }
    return undefined;
  }

  entries(): readonly (readonly [string, string])[] {
    const names = this.#spelledNames;
    if (names === undefined) return this.#fields;
    return this.#fields.map(([, value], index) => [names[index]!, value]);
  }
}
