import type { Headers } from "./transport.ts";

/** How fields were written, where that may differ from what they mean. */
export interface SentFields {
  readonly names: readonly string[];
  /** White space that stood behind values, by the index of the field. */
  readonly trailing?: ReadonlyMap<number, string> | undefined;
}

/** Header fields as they came; look-up is a scan, which is fastest for the dozen fields of a request. */
export class HeaderList implements Headers {
  readonly #fields: readonly (readonly [string, string])[];
  readonly #sent: SentFields | undefined;

  /** Names in lower case, values without white space around them; `sent` tells how they were written. */
  constructor(
    fields: readonly (readonly [string, string])[],
    sent?: SentFields,
  ) {
    this.#fields = fields;
    this.#sent = sent;
  }

  get(name: string): string | undefined {
    for (const field of this.#fields) {
      if (field[0] === name) return field[1];
    }
    return undefined;
  }

  /** Fields as they were written, but for white space before values. */
  entries(): readonly (readonly [string, string])[] {
    if (this.#sent === undefined) return this.#fields;
    const { names, trailing } = this.#sent;
    return this.#fields.map(([, value], index) => [
      names[index]!,
      value + (trailing?.get(index) ?? ""),
    ]);
  }
}
