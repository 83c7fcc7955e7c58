import { ServerError } from "../../proto/status.ts";
import {
  type OrtError,
  type OrtRunOptions,
  type OrtSession,
  takeStatus,
} from "../../ffi/onnxruntime/mod.ts";
import { pointerAt } from "../../ffi/memory.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import { runBound } from "./bound_run.ts";
import { collectValue } from "./output_collect.ts";
import type { OnnxModel } from "./model.ts";
import type { PreparedRun } from "./prepare_run.ts";

/** The whole outputs of a run, in the order of the prepared names. */
export type RunResult = readonly CollectedOutput[];

/**
 * Runs the session, at once or on the blocking pool, and takes the outputs.
 * @throws ServerError INTERNAL with the runtime's words, or rejects with it; then nothing of the outputs is held.
 */
export function runSession(
  model: OnnxModel,
  prepared: PreparedRun,
  options: OrtRunOptions,
): RunResult | Promise<RunResult> {
  const running = callRun(model, prepared, options);
  if (running === undefined) return collectAll(model, prepared);
  return Promise.resolve(running).then((error) =>
    error === undefined
      ? collectAll(model, prepared)
      : recoverRun(error, { model, prepared, options })
  );
}

/** Runs once more when the first run may have failed for what we foresaw of the outputs. */
async function recoverRun(
  firstError: OrtError,
  { model, prepared, options }: {
    readonly model: OnnxModel;
    readonly prepared: PreparedRun;
    readonly options: OrtRunOptions;
  },
): Promise<RunResult> {
  const { pending } = prepared;
  const foreseen = pending.map(({ target, placed }) => target?.shape ?? placed?.tensor.shape);
  if (/shape/i.test(firstError.message) && foreseen.some((shape) => shape !== undefined)) {
    // Perhaps an output is not of the shape that the model's signature promises: let the runtime decide.
    giveBack(model, prepared);
    const error = await callRun(model, prepared, options);
    if (error !== undefined) throw runtimeError(error);
    const result = collectAll(model, prepared);
    result.forEach(({ tensor }, index) => {
      const shape = foreseen[index];
      if (shape !== undefined && !sameShape(shape, tensor.shape)) model.distrustDims(tensor.name);
    });
    return result;
  }
  giveBack(model, prepared);
  throw runtimeError(firstError);
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((dim, index) => dim === b[index]);
}

function callRun(
  model: OnnxModel,
  prepared: PreparedRun,
  options: OrtRunOptions,
): OrtError | undefined | Promise<OrtError | undefined> {
  const { session, pace, now } = model;
  if (prepared.isBound) return runBound(model, prepared, options);
  if (!pace.mayBlock(prepared)) return callRunOnPool(model, prepared, options);
  const { calls } = session.environment;
  const start = now();
  const status = calls.RunBlocking(...runArguments(session, prepared, options));
  pace.recordBlocking(prepared, now() - start);
  return takeStatus(calls, status);
}

async function callRunOnPool(
  model: OnnxModel,
  prepared: PreparedRun,
  options: OrtRunOptions,
): Promise<OrtError | undefined> {
  const { session, gate, pace, now } = model;
  const { calls } = session.environment;
  const turn = gate.enter();
  if (turn !== undefined) await turn;
  const start = now();
  try {
    const status = await calls.Run(...runArguments(session, prepared, options));
    // What the call reads is referenced from `prepared`, which is used after it.
    pace.recordPooled(prepared, now() - start);
    return takeStatus(calls, status);
  } finally {
    gate.leave();
  }
}

function runArguments(session: OrtSession, prepared: PreparedRun, options: OrtRunOptions) {
  const { inputNames, inputs, outputNames, outputs } = prepared;
  return [
    session.pointer,
    options.pointer,
    inputNames.array,
    inputs,
    BigInt(inputNames.length),
    outputNames.array,
    BigInt(outputNames.length),
    outputs,
  ] as const;
}

/** Takes our targets out of a run that failed. */
function giveBack(model: OnnxModel, { pending, outputs }: PreparedRun): void {
  outputs.fill(0n);
  pending.forEach(({ plan, target }, index) => {
    if (target !== undefined) model.outputPool(plan)?.give(target);
    pending[index] = { plan, target: undefined, placed: undefined };
  });
}

function collectAll(model: OnnxModel, prepared: PreparedRun): RunResult {
  const { pending, outputs } = prepared;
  const { environment } = model.session;
  const collected: CollectedOutput[] = [];
  try {
    for (let index = 0; index < pending.length; index++) {
      const { plan, target, placed } = pending[index]!;
      if (placed !== undefined) {
        collected.push({ tensor: placed.tensor, release: undefined });
        continue;
      }
      if (target !== undefined) {
        const { name, datatype } = plan;
        const tensor = { name, datatype, shape: target.shape, data: target.data };
        const pool = model.outputPool(plan);
        collected.push({ tensor, release: () => pool?.give(target) });
        continue;
      }
      const value = pointerAt(outputs[index] ?? 0n);
      outputs[index] = 0n;
      if (value === null) {
        throw new ServerError("INTERNAL", `the model gave no value for output '${plan.name}'`);
      }
      collected.push(collectValue(environment, plan, value));
    }
    return collected;
  } catch (error) {
    for (const { release } of collected) release?.();
    for (let index = collected.length; index < pending.length; index++) {
      const { plan, target, placed } = pending[index]!;
      if (target !== undefined) model.outputPool(plan)?.give(target);
      else if (placed === undefined && outputs[index] !== 0n) {
        const value = pointerAt(outputs[index] ?? 0n);
        if (value !== null) environment.calls.ReleaseValue(value);
      }
    }
    throw error;
  }
}

/** The text the reference gives for failures of the runtime. */
export function runtimeError(error: OrtError): ServerError {
  const message = `onnx runtime error ${error.code}: ${error.message.trimEnd()}`;
  return new ServerError("INTERNAL", message, { cause: error });
}
