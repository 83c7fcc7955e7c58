/**
 * Measures one model on one device, in a process of its own: a graphics driver may end it.
 *
 *   deno run -A tests/bench/device_job.ts JOB
 *
 * JOB is a {@linkcode DeviceJob} as JSON; a {@linkcode DeviceResult} is printed as JSON on the last line.
 */
import { MachineDevices } from "../../backends/device.ts";
import type { KindOffer } from "../../backends/device_list.ts";
import { ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { findWebGpuAdapters } from "../../server/cli/device_probe.ts";
import {
  type ConfigInit,
  floats,
  type OpenedModel,
  openInstance,
  outputsOf,
} from "../backends/fixture.ts";
import { tensor } from "../backends/fixture.ts";

/** What is measured. The model has one FP32 input. */
export interface DeviceJob {
  readonly backend: "onnxruntime" | "onnxruntime_web" | "tensorrt";
  readonly modelFile: string;
  readonly shape: readonly number[];
  readonly device: "cpu" | "webgpu" | "cuda";
  /** Of ONNX Runtime, in front of the device's own provider. */
  readonly accelerator?: string;
  /** `--backend-config`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** What came of it. */
export type DeviceResult =
  | {
    readonly skipped: string;
    /** It could have run, and failed. */
    readonly isFault?: boolean;
  }
  | {
    readonly msPerRun: number;
    /** The first run, with what is compiled for it, and all that is done before it. */
    readonly firstMs: number;
    readonly device: string;
    /** Elements of the first output, not all of them. */
    readonly answer: readonly number[];
  };

const WARMUP_RUNS = 3;
/** Quietest of so many rounds: others use the processors, too. */
const ROUNDS = 6;
const ROUND_MS = 700;
const ANSWER_LENGTH_MAX = 1000;
const GROUP = "m_0";

/** Measures; a device that cannot be used here is told as the reason. @throws what loading or running throws. */
export async function runDeviceJob(job: DeviceJob): Promise<DeviceResult> {
  const began = performance.now();
  const settings = {
    "intra_op_thread_count": "1",
    ...(job.device === "webgpu" && job.backend === "onnxruntime"
      ? { "webgpu-software": "true" }
      : {}),
    ...job.settings,
  };
  const file = job.backend === "tensorrt" ? "model.plan" : "model.onnx";
  const options = {
    files: { [file]: await Deno.readFile(job.modelFile) },
    settings: job.backend === "tensorrt" ? job.settings ?? {} : settings,
  };
  const devices = new MachineDevices({
    minComputeCapability: 6,
    findWebGpuAdapters: () => findWebGpuAdapters(job.settings?.["library"]),
  });
  using _ = devices;
  const device = await findDevice(job, devices, options);
  if ("skipped" in device) return device;
  await using opened = await openInstance(job.backend, {
    ...options,
    config: configOf(job),
    placement: job.device === "cpu" ? {} : { kind: "KIND_GPU", device: job.device },
  });
  const run = createRun(opened, job);
  const answer = await run();
  const firstMs = performance.now() - began;
  for (let index = 0; index < WARMUP_RUNS; index++) await run();
  let msPerRun = Infinity;
  for (let round = 0; round < ROUNDS; round++) msPerRun = Math.min(msPerRun, await roundMs(run));
  return { msPerRun, firstMs, device: device.name, answer };
}

async function roundMs(run: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  let count = 0;
  do {
    await run();
    count++;
  } while (performance.now() - start < ROUND_MS);
  return (performance.now() - start) / count;
}

function createRun({ instance, request, source }: OpenedModel, { shape }: DeviceJob) {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, (_, index) => ((index * 37) % 255) / 127.5 - 1);
  const requests = [request([tensor(source.config.input[0]!.name, "FP32", shape, values)])];
  return async (): Promise<number[]> => {
    const { outcomes } = await instance.execute(requests);
    const [first] = outputsOf(outcomes[0]);
    const answer = floats({ ...first!, data: first!.data.slice(0, 4 * ANSWER_LENGTH_MAX) });
    (outcomes[0] as { release?: () => void }).release?.();
    return answer;
  };
}

/** Nothing may run on the CPU where another device is measured. */
function configOf({ device, accelerator, backend }: DeviceJob): ConfigInit {
  if (device === "cpu" || backend === "tensorrt") return {};
  return {
    instanceGroup: [{ name: GROUP, kind: ModelInstanceGroup_Kind.GPU, gpus: [0], count: 1 }],
    parameters: {
      "session.disable_cpu_ep_fallback": { stringValue: "1" },
      ...(device === "webgpu" ? { [`nereid.device.${GROUP}`]: { stringValue: device } } : {}),
    },
    ...(accelerator === undefined ? {} : {
      optimization: {
        executionAccelerators: { gpuExecutionAccelerator: [{ name: accelerator }] },
      },
    }),
  };
}

/** The device by name, or why it is not there. */
async function findDevice(
  job: DeviceJob,
  devices: MachineDevices,
  options: Parameters<typeof openInstance>[1],
): Promise<{ readonly name: string } | { readonly skipped: string }> {
  if (job.device === "cpu") return { name: "CPU" };
  await using plain = job.backend === "tensorrt"
    ? undefined
    : await openInstance(job.backend, options);
  const offers = await plain?.backend.kinds?.(devices, plain.source) ?? [];
  const refusal = refusalOf(offers, job.device);
  if (refusal !== undefined) return { skipped: refusal };
  if (job.device === "cuda") {
    const { gpus, reason } = await devices.gpus();
    const gpu = gpus.find(({ refusal }) => refusal === undefined);
    return gpu === undefined
      ? { skipped: gpus[0]?.refusal ?? reason ?? "no GPU" }
      : { name: gpu.name };
  }
  const source = job.backend === "onnxruntime" ? "onnxruntime" : "navigator.gpu";
  const { adapters } = await devices.webGpuAdapters();
  const adapter = adapters.find((each) => each.source === source)!;
  return { name: adapter.isSoftware ? `${adapter.name}, on the CPU` : adapter.name };
}

function refusalOf(offers: readonly KindOffer[], device: string): string | undefined {
  const offer = offers.find((each) => each.device === device);
  return offers.length > 0 && offer === undefined ? `no ${device}` : offer?.refusal;
}

if (import.meta.main) {
  const job = JSON.parse(Deno.args[0]!) as DeviceJob;
  const result = await runDeviceJob(job).catch((error: Error): DeviceResult => ({
    skipped: error.message,
    isFault: true,
  }));
  Deno.stdout.writeSync(new TextEncoder().encode(`\n${JSON.stringify(result)}\n`));
  Deno.exit(0);
}
