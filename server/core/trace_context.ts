/** A client's own trace, as `traceparent` and `tracestate` tell it (W3C Trace Context). */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** "" = none. */
  readonly state: string;
}

/** Where header fields or metadata are looked up; names in lower case. */
export interface FieldLookup {
  get(name: string): string | null | undefined;
}

const MAX_STATE_LENGTH = 8192;

/** Reads the trace context of a request; undefined when there is none, or it is malformed and to be ignored. */
export function parseTraceContext(fields: FieldLookup): TraceContext | undefined {
  const match = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(
    fields.get("traceparent")?.trim() ?? "",
  );
  if (match === null) return undefined;
  const [, version, traceId = "", spanId = "", , rest] = match;
  // Version 00 has exactly four parts; later ones may have more. ff is no version.
  if (version === "ff" || (version === "00" && rest !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  const state = fields.get("tracestate") ?? "";
  return {
    traceId,
    spanId,
    state: state.length > MAX_STATE_LENGTH ? "" : state,
  };
}

/** Bytes of an even number of hexadecimal digits. */
export function fromHex(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Two hexadecimal digits for each byte. */
export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
