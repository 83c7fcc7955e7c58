import type { HttpResponse } from "../transport/transport.ts";

/** Header fields of a response. */
export type HeaderFields = readonly (readonly [string, string])[];

/** Header fields of every JSON answer. */
export const JSON_HEADERS: HeaderFields = [["content-type", "application/json"]];

/** What {@linkcode formatJson} writes. */
export type JsonOutput =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly JsonOutput[]
  | { readonly [name: string]: JsonOutput | undefined };

/** Compact JSON; bigints as exact numbers, members that are undefined left out. */
export function formatJson(value: JsonOutput): string {
  if (typeof value === "bigint") return String(value);
  // Models may put half of a surrogate pair into a text: many parsers do not take that.
  if (typeof value === "string") return JSON.stringify(value.toWellFormed());
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (isList(value)) return `[${value.map(formatJson).join(",")}]`;
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    if (member !== undefined) members.push(`${JSON.stringify(name)}:${formatJson(member)}`);
  }
  return `{${members.join(",")}}`;
}

function isList(value: JsonOutput): value is readonly JsonOutput[] {
  return Array.isArray(value);
}

/** A response with a JSON body. */
export function jsonResponse(
  value: JsonOutput,
  { status = 200, headers = [] }: { status?: number; headers?: HeaderFields } = {},
): HttpResponse {
  return {
    status,
    headers: headers.length === 0 ? JSON_HEADERS : [...JSON_HEADERS, ...headers],
    body: [new TextEncoder().encode(formatJson(value))],
  };
}

/** A success without content, of an endpoint that otherwise speaks JSON. */
export const EMPTY_JSON_RESPONSE: HttpResponse = { status: 200, headers: JSON_HEADERS };
