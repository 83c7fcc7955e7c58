import { join } from "node:path";
import { completeRequest } from "../../server/cli/embedded_request.ts";
import { parseFlags } from "../../server/cli/flags.ts";
import { openLog } from "../../server/cli/open_log.ts";
import { createProgram } from "../../server/cli/program.ts";
import { readServeOptions } from "../../server/cli/serve_options.ts";
import type { InferenceServer } from "../../server/core/inference_server.ts";
import { measureCalls, type Rate } from "./measure_calls.ts";
import { formatGoal, print } from "./report.ts";
import { rampValues } from "./payload.ts";
import {
  type Language,
  type ScriptKind,
  scriptModel,
  scriptPayload,
  writeScriptModels,
} from "./script_models.ts";
import { SocketEcho } from "./socket_echo.ts";

const SMALL_P50_US_MAX = 100;
const LARGE_P50_US_MAX = 500;
const BATCHED_PER_SECOND_MIN = 20_000;
const STARTS = 5;
/** Quietest of so many rounds: others use the processors, too. */
const ROUNDS = 6;

interface Row {
  readonly kind: ScriptKind;
  readonly concurrency: number;
}

const ROWS: readonly Row[] = [
  { kind: "adder", concurrency: 1 },
  { kind: "adder", concurrency: 16 },
  { kind: "batched", concurrency: 16 },
  { kind: "batched", concurrency: 64 },
  { kind: "identity", concurrency: 1 },
  { kind: "identity", concurrency: 16 },
  { kind: "bls", concurrency: 1 },
  { kind: "bls", concurrency: 16 },
];

/**
 * Measures models of one language without any transport, next to the same bytes through a plain socket to a Python
 * child: what the scheduler, the backend and the model cost.
 */
export async function measureScripts(
  language: Language,
  { directory, seconds }: { readonly directory: string; readonly seconds: number },
): Promise<void> {
  const repository = join(directory, `inside_${language}`);
  await writeScriptModels(repository, language);
  await using echo = await SocketEcho.start(directory);
  await using inside = await startInside(repository);
  const rates = new Map<string, Rate>();
  for (const { kind, concurrency } of ROWS) {
    const { call, byteSize } = createCall(inside.server, language, kind);
    const share = 2 * seconds / ROUNDS;
    let [ours, plain]: (Rate | undefined)[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      plain = better(plain, await echo.measure(byteSize, concurrency, share), concurrency);
      ours = better(ours, await measureCalls(call, concurrency, share), concurrency);
    }
    rates.set(`${kind} ${concurrency}`, ours!);
    const title = `${scriptPayload(language, kind).title} ${concurrency}`;
    print(formatRate(`inside  ${title}`, ours!) + formatRatios(ours!, plain!));
  }
  printGoals(language, rates);
  await measureStart(language, repository);
}

/** A server without listeners. */
async function startInside(
  repository: string,
  flags: readonly string[] = [],
): Promise<AsyncDisposable & { readonly server: InferenceServer }> {
  const options = readServeOptions(
    parseFlags([`--model-repository=${repository}`, "--log-info=false", ...flags]),
  );
  const log = openLog(options.log);
  const program = createProgram(options, log);
  const { error } = await program.load();
  if (error !== undefined) throw error;
  return {
    server: program.server,
    [Symbol.asyncDispose]: async () => {
      await program.stop(10_000);
      log[Symbol.dispose]();
    },
  };
}

function createCall(server: InferenceServer, language: Language, kind: ScriptKind) {
  const { model: modelName, inputName, moreInputs = [], shape } = scriptPayload(language, kind);
  const data = rampValues(shape);
  const inputs = [inputName, ...moreInputs].map((name) => ({
    name,
    datatype: "FP32" as const,
    shape,
    data,
  }));
  const call = async () => {
    const response = await server.infer(completeRequest({ modelName, inputs }));
    const { byteLength } = response.outputs[0]!.data;
    server.releaseResponse(response);
    if (byteLength !== data.byteLength) throw new Error("A wrong answer");
  };
  return { call, byteSize: inputs.length * data.byteLength };
}

/** The quieter of two rounds: by its times for one call at a time, else by its rate. */
function better(left: Rate | undefined, right: Rate, concurrency: number): Rate {
  if (left === undefined) return right;
  const isFaster = concurrency === 1 ? right.p50Us < left.p50Us : right.perSecond > left.perSecond;
  return isFaster ? right : left;
}

function formatRate(title: string, { perSecond, p50Us, p99Us, cpuUs }: Rate): string {
  const numbers = [perSecond, p50Us, p99Us].map((value) => value.toFixed(0).padStart(10));
  return `${title.padEnd(44)} ${numbers.join("")}  ${cpuUs.toFixed(1).padStart(13)}`;
}

function formatRatios(ours: Rate, plain: Rate): string {
  return `   ${(ours.perSecond / plain.perSecond).toFixed(2)} x socket echo rate, ` +
    `${(ours.p50Us / plain.p50Us).toFixed(2)} x its p50 (${plain.p50Us.toFixed(0)} us), ` +
    `${(ours.cpuUs / plain.cpuUs).toFixed(2)} x its CPU (${plain.cpuUs.toFixed(0)} us)`;
}

function printGoals(language: Language, rates: ReadonlyMap<string, Rate>): void {
  const small = rates.get("adder 1")!.p50Us;
  const large = rates.get("identity 1")!.p50Us;
  const bls = rates.get("bls 1")!.p50Us;
  const batched = Math.max(
    ...["batched 16", "batched 64"].map((row) => rates.get(row)!.perSecond),
  );
  const goal = (title: string, value: number, limit: string, isReached: boolean) =>
    print(formatGoal(`${language}: ${title}`, value, limit, isReached));
  const isSmallFast = small <= SMALL_P50_US_MAX;
  goal("p50 us of a small request", small, `<= ${SMALL_P50_US_MAX}`, isSmallFast);
  goal("p50 us of 602 KB", large, `<= ${LARGE_P50_US_MAX}`, large <= LARGE_P50_US_MAX);
  const isBatchedFast = batched >= BATCHED_PER_SECOND_MIN;
  const batchedGoal = `>= ${BATCHED_PER_SECOND_MIN}`;
  goal("batched requests/s of one instance", batched, batchedGoal, isBatchedFast);
  print(`${language}: a BLS call adds ${(bls - small).toFixed(0)} us (${bls.toFixed(0)} in all)`);
}

/** How long it takes until a version with one instance is ready: its process or Worker, and the model in it. */
async function measureStart(language: Language, repository: string): Promise<void> {
  const times: number[] = [];
  for (let count = 0; count < STARTS; count++) {
    const begin = performance.now();
    const name = scriptModel(language, "adder");
    await using _ = await startInside(repository, [
      "--model-control-mode=explicit",
      `--load-model=${name}`,
    ]);
    times.push(performance.now() - begin);
  }
  times.sort((left, right) => left - right);
  print(
    `${language}: a model with one instance is ready after ${times[STARTS >> 1]!.toFixed(0)} ms`,
  );
}
