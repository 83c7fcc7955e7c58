import { basename, join } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ServerError } from "../../proto/status.ts";
import type { BackendSettings, ModelSource } from "../backend.ts";
import { flagSetting, parseInteger } from "../onnx_setting_values.ts";
import { SIGNATURE_KEY, type SignatureWish, TAG_KEY } from "./choose_signature.ts";

const INIT_OPS_KEY = "TF_INIT_OPS_FILE";
const TRUE_WORDS = new Set(["true", "on", "1"]);
const FALSE_WORDS = new Set(["false", "off", "0"]);

/** Fields of `ConfigProto`, `GraphOptions` and `OptimizerOptions`. */
const CONFIG = {
  deviceCount: 1,
  intraOpThreads: 2,
  interOpThreads: 5,
  allowSoftPlacement: 7,
  usePerSessionThreads: 9,
  graphOptions: 10,
} as const;
const GRAPH_OPTIONS = { optimizerOptions: 3 } as const;
const OPTIMIZER_OPTIONS = { level: 3, jitLevel: 5 } as const;
const LEVEL_OFF = -1;
const JIT_OFF = -1;

/** What the configuration says about running one model. */
export interface TensorFlowSettings {
  /** Encoded `ConfigProto` of its sessions. */
  readonly config: Uint8Array<ArrayBuffer>;
  /** Instances that share a session. */
  readonly sessionShareCount: number;
  readonly wish: SignatureWish;
  /** Name of the JSON file with operations to run first; "" = none. */
  readonly initOpsFile: string;
  /** Libraries with operators of the model. */
  readonly operatorLibraries: readonly string[];
}

/** @throws ServerError INVALID_ARG naming the parameter and its value. */
export function readTensorFlowSettings(
  source: Pick<ModelSource, "config" | "name" | "modelDirectory">,
  settings: BackendSettings,
): TensorFlowSettings {
  const { config, name, modelDirectory } = source;
  const text = (key: string) => config.parameters[key]?.stringValue ?? "";
  const what = (key: string) => `parameter '${key}' of model '${name}'`;
  const count = (key: string, minimum: number, fallback: number): number => {
    const value = text(key) === "" ? fallback : parseInteger(text(key), what(key));
    if (value >= minimum) return value;
    throw new ServerError(
      "INVALID_ARG",
      `${what(key)} must be a whole number from ${minimum} on, got '${text(key)}'`,
    );
  };
  const initOpsFile = text(INIT_OPS_KEY);
  if (initOpsFile !== basename(initOpsFile)) {
    throw new ServerError(
      "INVALID_ARG",
      `${what(INIT_OPS_KEY)} must name a file in the folder of the model or of the version, got ` +
        `'${initOpsFile}'`,
    );
  }
  return {
    config: encodeConfig({
      intraOpThreads: count("TF_NUM_INTRA_THREADS", 0, 0),
      interOpThreads: count("TF_NUM_INTER_THREADS", 0, 0),
      usePerSessionThreads: parseWord(text("TF_USE_PER_SESSION_THREADS"), what),
      allowSoftPlacement: flagSetting(settings, "allow-soft-placement") ?? true,
      graphLevel: config.optimization?.graph?.level ?? 0,
    }),
    sessionShareCount: count("MAX_SESSION_SHARE_COUNT", 1, 1),
    wish: { tag: text(TAG_KEY), signature: text(SIGNATURE_KEY) },
    initOpsFile,
    operatorLibraries: (config.modelOperations?.opLibraryFilename ?? []).map((file) => {
      if (!file.split(/[\\/]/).includes("..")) return join(modelDirectory, file);
      throw new ServerError(
        "INVALID_ARG",
        `op_library_filename '${file}' of model '${name}' must not contain '..'`,
      );
    }),
  };
}

function parseWord(text: string, what: (key: string) => string): boolean {
  const word = text.toLowerCase();
  if (word === "" || FALSE_WORDS.has(word)) return false;
  if (TRUE_WORDS.has(word)) return true;
  throw new ServerError(
    "INVALID_ARG",
    `${
      what("TF_USE_PER_SESSION_THREADS")
    } must be 'true', 'on' or '1', or 'false', 'off' or '0', got '${text}'`,
  );
}

function encodeConfig(options: {
  readonly intraOpThreads: number;
  readonly interOpThreads: number;
  readonly usePerSessionThreads: boolean;
  readonly allowSoftPlacement: boolean;
  readonly graphLevel: number;
}): Uint8Array<ArrayBuffer> {
  const writer = new BinaryWriter();
  // A library for GPUs would otherwise take most of their memory for models that run on the CPU.
  writer.tag(CONFIG.deviceCount, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.LengthDelimited).string("GPU").tag(2, WireType.Varint).int32(0).join();
  writer.tag(CONFIG.intraOpThreads, WireType.Varint).int32(options.intraOpThreads);
  writer.tag(CONFIG.interOpThreads, WireType.Varint).int32(options.interOpThreads);
  writer.tag(CONFIG.allowSoftPlacement, WireType.Varint).bool(options.allowSoftPlacement);
  writer.tag(CONFIG.usePerSessionThreads, WireType.Varint).bool(options.usePerSessionThreads);
  const { graphLevel } = options;
  if (graphLevel !== 0) {
    writer.tag(CONFIG.graphOptions, WireType.LengthDelimited).fork();
    writer.tag(GRAPH_OPTIONS.optimizerOptions, WireType.LengthDelimited).fork();
    if (graphLevel < 0) writer.tag(OPTIMIZER_OPTIONS.level, WireType.Varint).int32(LEVEL_OFF);
    const jit = graphLevel < 0 ? JIT_OFF : Math.min(graphLevel, 2);
    writer.tag(OPTIMIZER_OPTIONS.jitLevel, WireType.Varint).int32(jit).join().join();
  }
  return Uint8Array.from(writer.finish());
}
