import type { FlagSpec } from "./flag_table.ts";

const NO_SAGEMAKER = "there is no SageMaker endpoint";
const NO_VERTEX = "there is no Vertex AI endpoint";

type Row = readonly [name: string, kind: FlagSpec["kind"], value: string, preset: string, string];

const WITHOUT_EFFECT: readonly Row[] = [
  ["cache-directory", "text", "PATH", "", "caches are part of the server"],
  ["cuda-virtual-address-size", "text", "GPU:BYTES", "", "states are kept in host memory"],
  ["buffer-manager-thread-count", "int", "N", "0", "tensors are not copied by threads"],
  ["host-policy", "text", "POLICY,KEY=VALUE", "", "threads are not bound to cores"],
  ["sagemaker-port", "int", "PORT", "8080", NO_SAGEMAKER],
  ["sagemaker-safe-port-range", "text", "A-B", "", NO_SAGEMAKER],
  ["sagemaker-thread-count", "int", "N", "8", NO_SAGEMAKER],
  ["vertex-ai-port", "int", "PORT", "8080", NO_VERTEX],
  ["vertex-ai-thread-count", "int", "N", "8", NO_VERTEX],
  ["vertex-ai-default-model", "text", "NAME", "", NO_VERTEX],
];

const LATER: readonly Row[] = [
  ["allow-sagemaker", "bool", "", "false", "SageMaker endpoint"],
  ["allow-vertex-ai", "bool", "", "false", "Vertex AI endpoint"],
];

const DEPRECATED: readonly Row[] = [
  ["strict-model-config", "bool", "--disable-auto-complete-config", "", ""],
  ["trace-file", "text", "--trace-config=triton,file=…", "", ""],
  ["trace-level", "text", "--trace-config=level=…", "OFF", ""],
  ["trace-rate", "text", "--trace-config=rate=…", "1000", ""],
  ["trace-count", "text", "--trace-config=count=…", "-1", ""],
  ["trace-log-frequency", "text", "--trace-config=triton,log-frequency=…", "0", ""],
];

function presetOf(preset: string): { preset?: string } {
  return preset === "" ? {} : { preset };
}

/** Flags of Triton that are taken so that its command lines work, but change nothing here. */
const IDLE_FLAGS: readonly FlagSpec[] = WITHOUT_EFFECT.map((
  [name, kind, value, preset, noEffect],
) => ({
  name,
  group: "Without effect here",
  kind,
  value,
  ...presetOf(preset),
  help: noEffect,
  noEffect,
  repeated: kind === "text",
}));

/** Flags of later features: their default may be given, nothing else. */
const LATER_FLAGS: readonly FlagSpec[] = LATER.map(([name, kind, value, preset, later]) => ({
  name,
  group: "Of later features",
  kind,
  value,
  ...presetOf(preset),
  help: later,
  later,
  repeated: kind === "text",
}));

/** Older spellings. */
const DEPRECATED_FLAGS: readonly FlagSpec[] = DEPRECATED.map((
  [name, kind, replacement, preset, later],
) => ({
  name,
  group: "Deprecated",
  kind,
  ...presetOf(preset),
  help: `write ${replacement}`,
  replacement,
  ...(later === "" ? {} : { later }),
}));

/** The flags of cli.md §2 that are accepted or refused by name, and obeyed in no way. */
export const UNSERVED_FLAGS: readonly FlagSpec[] = [
  ...IDLE_FLAGS,
  ...LATER_FLAGS,
  ...DEPRECATED_FLAGS,
];
