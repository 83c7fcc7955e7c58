import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import { measure, type MeasureOptions, type Target } from "./measure.ts";
import type { RequestParts } from "./payload.ts";
import { formatCell, print } from "./report.ts";

const MODEL = "bench_repeat";
const RESPONSES_PER_REQUEST = 1000;

const CONFIG = `backend: "repeat"
model_transaction_policy { decoupled: true }
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] }
]
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "response_count" value { string_value: "${RESPONSES_PER_REQUEST}" } }
`;

/** Writes the decoupled model that {@linkcode measureDecoupled} asks. */
export async function writeDecoupledModel(repository: string): Promise<void> {
  await Deno.mkdir(join(repository, MODEL, "1"), { recursive: true });
  await Deno.writeTextFile(join(repository, MODEL, "config.pbtxt"), CONFIG);
}

/** Measures responses per second of decoupled requests on gRPC streams (the column `requests/s`). */
export async function measureDecoupled(
  ours: Target,
  directory: string,
  options: MeasureOptions & { readonly concurrencies: readonly number[] },
): Promise<void> {
  const request = await writeStreamRequest(directory);
  for (const concurrency of options.concurrencies) {
    const cell = await measure(ours, request, concurrency, options);
    print(formatCell(`ours  decoupled responses ${concurrency}`, cell, []));
  }
}

async function writeStreamRequest(directory: string): Promise<RequestParts> {
  const bodyFile = join(directory, `${MODEL}.bin`);
  const message = create(ModelInferRequestSchema, {
    modelName: MODEL,
    inputs: [
      { name: "IN", datatype: "INT32", shape: [1n] },
      { name: "DELAY", datatype: "UINT32", shape: [1n] },
      { name: "WAIT", datatype: "UINT32", shape: [1n] },
    ],
    rawInputContents: [Uint8Array.of(7, 0, 0, 0), new Uint8Array(4), new Uint8Array(4)],
  });
  await Deno.writeFile(bodyFile, toBinary(ModelInferRequestSchema, message));
  return {
    way: "grpc-stream",
    path: "/inference.GRPCInferenceService/ModelStreamInfer",
    headers: [],
    bodyFile,
    responsesPerRequest: RESPONSES_PER_REQUEST,
  };
}
