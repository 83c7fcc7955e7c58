import { checkDepth, JsonReader } from "./json_reader.ts";
import { ServerError } from "./status.ts";

/**
 * A JSON value. Whole numbers in the range of int64 or uint64 are bigint, every other number is number, so that no
 * digit is lost and `1.0` can be told from `1`. Of members with the same name the first one counts.
 */
export type JsonValue = null | boolean | bigint | number | string | JsonValue[] | JsonObject;

/** Values a document may have that becomes a tree: each of them is an object, and takes its time. */
export const JSON_VALUES_MAX = 65_536;

/** A JSON object. */
export type JsonObject = Map<string, JsonValue>;

/**
 * Reads a whole document that is small enough to become a tree of values.
 * @throws ServerError INVALID_ARG with the byte offset when it is malformed, or when it has too many values.
 */
export function parseJson(bytes: Uint8Array): JsonValue {
  const reader = new JsonReader(bytes);
  const value = readJsonValue(reader);
  reader.finish();
  return value;
}

/** Reads the next value of `reader`, which lies in `depth` levels already. */
export function readJsonValue(reader: JsonReader, depth = 0): JsonValue {
  if (++reader.valueCount > JSON_VALUES_MAX) throw tooManyValues();
  switch (reader.kind()) {
    case "string":
      return reader.readString();
    case "boolean":
      return reader.readBoolean();
    case "number": {
      const value = reader.readDouble();
      const { number } = reader;
      return number.isInt64 || number.isUint64 ? number.toBigInt() : value;
    }
    case "null":
      reader.readNull();
      return null;
    case "array": {
      checkDepth(depth + 1);
      const elements: JsonValue[] = [];
      for (let more = reader.firstElement(); more; more = reader.nextElement()) {
        elements.push(readJsonValue(reader, depth + 1));
      }
      return elements;
    }
    case "object": {
      checkDepth(depth + 1);
      const members: JsonObject = new Map();
      for (let key = reader.firstKey(); key !== undefined; key = reader.nextKey()) {
        const value = readJsonValue(reader, depth + 1);
        if (!members.has(key)) members.set(key, value);
      }
      return members;
    }
  }
}

function tooManyValues(): ServerError {
  return new ServerError("INVALID_ARG", `request JSON has more than ${JSON_VALUES_MAX} values`);
}

/** The error of a value of the wrong type; `what` names the member, `type` what it should be. */
export function wrongType(what: string, type: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `Unable to parse '${what}': attempt to access JSON ` +
      `non-${type === "double" ? "number" : type} as ${type}`,
  );
}

/** The error of a member that is missing. */
export function missingMember(what: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `Unable to parse '${what}': attempt to access non-existing object member '${what}'`,
  );
}
