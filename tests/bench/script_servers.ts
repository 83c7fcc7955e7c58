import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import { type Cell, measure, type MeasureOptions, type Target } from "./measure.ts";
import { type RequestParts, writeRequest } from "./payload.ts";
import { formatCell, formatGoal, print } from "./report.ts";
import type { Way } from "./load_job.ts";
import {
  type Language,
  RESPONSES_PER_REQUEST,
  type ScriptKind,
  scriptPayload,
  writeScriptModels,
} from "./script_models.ts";

/** Of the real server with the same models. */
const RATE_MIN = 1.5;
const CPU_MAX = 0.7;

interface Row {
  readonly kind: ScriptKind;
  readonly way: Way;
  readonly concurrency: number;
}

const ROWS: readonly Row[] = [
  { kind: "adder", way: "http-binary", concurrency: 1 },
  { kind: "adder", way: "http-binary", concurrency: 16 },
  { kind: "adder", way: "grpc", concurrency: 16 },
  { kind: "batched", way: "grpc", concurrency: 16 },
  { kind: "batched", way: "grpc", concurrency: 64 },
  { kind: "batched", way: "http-binary", concurrency: 64 },
  { kind: "identity", way: "http-binary", concurrency: 1 },
  { kind: "identity", way: "http-binary", concurrency: 16 },
  { kind: "identity", way: "grpc", concurrency: 16 },
  { kind: "bls", way: "http-binary", concurrency: 1 },
  { kind: "bls", way: "grpc", concurrency: 16 },
  { kind: "decoupled", way: "grpc-stream", concurrency: 1 },
  { kind: "decoupled", way: "grpc-stream", concurrency: 16 },
];

/** What comparing servers works with. */
export interface ScriptServers {
  readonly directory: string;
  readonly options: MeasureOptions;
  readonly startOurs: (repository: string) => Promise<Target & AsyncDisposable>;
  /** The real server; absent = only ours is measured. */
  readonly startReference?: ((repository: string) => Promise<Target & AsyncDisposable>) | undefined;
}

/**
 * Measures models of one language behind the protocols, CPU of all processes of the server included; models in Python
 * also on the real server, row by row, both idle while the other one works.
 */
export async function compareScriptServers(language: Language, servers: ScriptServers) {
  const { directory, options } = servers;
  const repository = join(directory, `served_${language}`);
  await writeScriptModels(repository, language);
  await using ours = await servers.startOurs(repository);
  await using reference = language === "python"
    ? await servers.startReference?.(repository)
    : undefined;
  for (const { kind, way, concurrency } of ROWS) {
    const title = `${scriptPayload(language, kind).title} ${way} ${concurrency}`;
    const request = kind === "decoupled"
      ? await writeStreamRequest(language, directory)
      : await writeRequest(scriptPayload(language, kind), way, directory);
    const cell = await measure(ours, request, concurrency, options);
    if (reference === undefined) {
      print(formatCell(`ours  ${title}`, cell, []));
      continue;
    }
    const other = await measure(reference, request, concurrency, options);
    print(formatCell(`real  ${title}`, other, []));
    print(formatCell(`ours  ${title}`, cell, [
      ["x its rate", cell.perSecond / other.perSecond],
      ["x its CPU", cell.cpuUs / other.cpuUs],
    ]));
    printGoals(title, cell, other);
  }
}

function printGoals(title: string, ours: Cell, reference: Cell): void {
  const rate = ours.perSecond / reference.perSecond;
  const cpu = ours.cpuUs / reference.cpuUs;
  print(
    formatGoal(`${title}: rate of the real server's`, rate, `>= ${RATE_MIN}`, rate >= RATE_MIN),
  );
  print(formatGoal(`${title}: CPU of the real server's`, cpu, `<= ${CPU_MAX}`, cpu <= CPU_MAX));
}

async function writeStreamRequest(language: Language, directory: string): Promise<RequestParts> {
  const { model, inputName } = scriptPayload(language, "decoupled");
  const bodyFile = join(directory, `${model}.bin`);
  const message = create(ModelInferRequestSchema, {
    modelName: model,
    inputs: [{ name: inputName, datatype: "FP32", shape: [1n] }],
    rawInputContents: [new Uint8Array(4)],
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
