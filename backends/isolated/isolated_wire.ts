import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { configError, configFaults, type ConfigIssue } from "../../proto/model_config.ts";
import { ServerError, STATUS_TEXT, type StatusCode } from "../../proto/status.ts";
import type { ModelSource } from "../backend.ts";
import { type FramePayload, FREE_KIND } from "../process/frame.ts";
import { clipText } from "../process/wire_values.ts";

/** Kinds of frames (wire.md). */
export const FRAME = {
  ask: 1,
  answer: 2,
  execute: 3,
  executed: 4,
  send: 5,
  cancelled: 6,
  credit: 7,
  log: 8,
  logLevel: 9,
  batchRetry: 10,
  call: 11,
  reply: 12,
  mark: 13,
  deviceLost: 14,
  free: FREE_KIND,
} as const;

/** The JSON of a frame. */
export type Json = Readonly<Record<string, unknown>>;

/** An error as it travels: code, text, and the faults of a configuration if it tells those. */
export type WireError = readonly [StatusCode, string] | readonly [StatusCode, string, unknown];

const ISSUE_COUNT_MAX = 1000;

/** An error for the other side. */
export function wireError(reason: unknown): WireError {
  const error = ServerError.from(reason);
  const { code } = error;
  const message = clipText(error.message);
  const { issues } = configFaults(error);
  const isPlain = issues.length === 1 && issues[0]!.message === error.message;
  return isPlain ? [code, message] : [code, message, issues.slice(0, ISSUE_COUNT_MAX)];
}

/** What {@linkcode wireError} made. @throws RangeError */
export function readError(error: unknown): ServerError {
  if (!Array.isArray(error) || error.length < 2) throw new RangeError("Expected an error");
  const [code, message, issues] = error as unknown[];
  if (!isCode(code)) throw new RangeError(`Expected the code of an error, got ${String(code)}`);
  if (typeof message !== "string") throw new RangeError("Expected the text of an error");
  if (issues === undefined) return new ServerError(code, clipText(message));
  if (!Array.isArray(issues) || issues.length > ISSUE_COUNT_MAX || !issues.every(isIssue)) {
    throw new RangeError("Expected the faults of a configuration");
  }
  return configError(issues);
}

function isCode(code: unknown): code is StatusCode {
  return typeof code === "string" && Object.hasOwn(STATUS_TEXT, code);
}

function isIssue(issue: unknown): issue is ConfigIssue {
  if (typeof issue !== "object" || issue === null) return false;
  const { path, message, code, hint, place, position } = issue as Record<string, unknown>;
  const isPlaced = position === undefined ||
    typeof position === "object" && position !== null && "line" in position;
  return isPlaced && typeof path === "string" && typeof message === "string" &&
    (code === undefined || isCode(code)) &&
    [hint, place].every((text) => text === undefined || typeof text === "string");
}

/** Where a model version is, without its configuration. */
export function wireSource({ name, version, modelDirectory, versionDirectory }: ModelSource): Json {
  return { name, version, modelDirectory, versionDirectory };
}

/** What {@linkcode wireSource} made, with its configuration. */
export function readSource(source: Json, config: ModelConfig): ModelSource {
  return {
    name: String(source.name),
    version: Number(source.version),
    modelDirectory: String(source.modelDirectory),
    versionDirectory: String(source.versionDirectory),
    config,
  };
}

/** A configuration as the payload of a frame. */
export function wireConfig(config: ModelConfig): FramePayload {
  const bytes = toBinary(ModelConfigSchema, config);
  return { parts: [bytes], byteSize: bytes.byteLength };
}

/** The configuration in a payload. @throws RangeError when there is none */
export function readConfig(payload: Uint8Array): ModelConfig {
  try {
    return fromBinary(ModelConfigSchema, payload);
  } catch (error) {
    throw new RangeError(`Expected a configuration of a model: ${error}`);
  }
}
