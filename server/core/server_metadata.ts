import type { ServerMetadata } from "./inference_api.ts";

/** The release whose protocol this server speaks; clients compare it. */
const PROTOCOL_VERSION = "2.73.0";

/** Extensions in the order of http.md §4; clients look theirs up. */
const EXTENSIONS: readonly string[] = [
  "classification",
  "sequence",
  "model_repository",
  "model_repository(unload_dependents)",
  "schedule_policy",
  "model_configuration",
  "system_shared_memory",
  "cuda_shared_memory",
  "binary_tensor_data",
  "parameters",
  "statistics",
  "trace",
  "logging",
  // Of this server alone: FP16 and BF16 as JSON numbers, which other servers refuse.
  "json_half_precision_data(fp16,bf16)",
];

/** What `GET /v2` says about a server of this name. */
export function createServerMetadata(id: string): ServerMetadata {
  return { name: id, version: PROTOCOL_VERSION, extensions: EXTENSIONS };
}
