/**
 * Bare ONNX Runtime: the same model and tensor in a loop, through ffi/onnxruntime alone.
 * `deno run -A tests/bench/bare_onnx.ts JOB` with a BareOnnxJob as JSON; prints a BareOnnxResult.
 */
import process from "node:process";
import { CStringArray, pointerAt } from "../../ffi/memory.ts";
import {
  ELEMENT_TYPE,
  OrtEnvironment,
  OrtRunOptions,
  OrtSession,
  OrtTensor,
  takeStatus,
} from "../../ffi/onnxruntime/mod.ts";
import { machineCpuUs } from "./measured_process.ts";

/** One model in a loop. */
export interface BareOnnxJob {
  readonly modelFile: string;
  readonly inputName: string;
  readonly outputName: string;
  readonly shape: readonly number[];
  readonly seconds: number;
  /** True: the call blocks the only thread. False: it runs on Deno's pool, as a server must do with long runs. */
  readonly blocking: boolean;
}

/** What the loop achieved. */
export interface BareOnnxResult {
  readonly perSecond: number;
  /** CPU time of the process per run. */
  readonly cpuUs: number;
  /** Processors that other programs kept busy meanwhile. */
  readonly foreign: number;
}

if (import.meta.main) {
  const job = JSON.parse(Deno.args[0]!) as BareOnnxJob;
  const environment = OrtEnvironment.open();
  const session = await OrtSession.open(environment, job.modelFile, { intraOpThreadCount: 1 });
  const count = job.shape.reduce((product, size) => product * size, 1);
  const values = Float32Array.from(
    { length: count },
    (_, index) => ((index * 37) % 255) / 127.5 - 1,
  );
  const input = OrtTensor.over(environment, new Uint8Array(values.buffer), {
    shape: job.shape,
    elementType: ELEMENT_TYPE.FLOAT!,
  });
  const names = [new CStringArray([job.inputName]), new CStringArray([job.outputName])] as const;
  const inputs = new BigUint64Array([input.address]);
  const outputs = new BigUint64Array(1);
  const options = OrtRunOptions.create(environment);
  const { calls } = environment;
  const run = async () => {
    outputs[0] = 0n;
    const args = [
      session.pointer,
      options.pointer,
      names[0].array,
      inputs,
      1n,
      names[1].array,
      1n,
      outputs,
    ] as const;
    const error = takeStatus(
      calls,
      job.blocking ? calls.RunBlocking(...args) : await calls.Run(...args),
    );
    if (error !== undefined) throw error;
    calls.ReleaseValue(pointerAt(outputs[0]!)!);
  };
  for (let index = 0; index < 20; index++) await run();
  const cpuBefore = process.cpuUsage();
  const machineBefore = await machineCpuUs();
  const began = performance.now();
  let runs = 0;
  while (performance.now() - began < job.seconds * 1000) {
    await run();
    runs++;
  }
  const seconds = (performance.now() - began) / 1000;
  const cpu = process.cpuUsage();
  const ownUs = cpu.user + cpu.system - cpuBefore.user - cpuBefore.system;
  const foreignUs = await machineCpuUs() - machineBefore - ownUs;
  const result: BareOnnxResult = {
    perSecond: runs / seconds,
    cpuUs: ownUs / runs,
    foreign: Math.max(0, foreignUs) / (seconds * 1_000_000),
  };
  console.log(JSON.stringify(result));
  Deno.exit(0);
}
