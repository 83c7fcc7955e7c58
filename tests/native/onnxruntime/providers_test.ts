import { deepEqual, match, rejects } from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { readProviders, type SessionDevice } from "../../../backends/onnxruntime/accelerators.ts";
import {
  listProviders,
  OrtEnvironment,
  OrtError,
  OrtSession,
  type ProviderSettings,
} from "../../../ffi/onnxruntime/mod.ts";
import { ModelConfigSchema } from "../../../proto/gen/model_config_pb.ts";

const SOURCE = new URL("ort_stand_in.c", import.meta.url).pathname;
/** No model is ever read. */
const NO_MODEL = new Uint8Array(new ArrayBuffer(4));

interface StandIn {
  readonly environment: OrtEnvironment;
  /** Calls since the last time. */
  takeCalls(): string[];
}

/** Builds the stand-in and opens it, once; undefined without a compiler. It stays open, as every library does. */
const standIn = (async (): Promise<StandIn | undefined> => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/libonnxruntime.so`;
  // The providers are looked for beside the library.
  for (const name of ["cuda", "tensorrt"]) {
    await Deno.writeTextFile(`${folder}/libonnxruntime_providers_${name}.so`, "");
  }
  try {
    const args = ["-O1", "-shared", "-fPIC", "-o", path, SOURCE];
    const { success } = await new Deno.Command("gcc", { args }).output().catch(() => ({
      success: false,
    }));
    if (!success) return undefined;
    const { symbols } = Deno.dlopen(path, {
      // const char* stand_in_calls(void)
      stand_in_calls: { parameters: [], result: "pointer" },
      // void stand_in_reset(void)
      stand_in_reset: { parameters: [], result: "void" },
    });
    return {
      environment: OrtEnvironment.open({ libraryPath: path }),
      takeCalls() {
        const text = Deno.UnsafePointerView.getCString(symbols.stand_in_calls()!);
        symbols.stand_in_reset();
        return text.split("\n").filter((line) => line !== "");
      },
    };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
})();

function testStandIn(name: string, run: (library: StandIn) => Promise<void>): void {
  Deno.test(name, async () => {
    const library = await standIn;
    if (library === undefined) return console.log("skipped: gcc is not installed");
    library.takeCalls();
    await run(library);
  });
}

async function openWith(
  { environment }: StandIn,
  providers: readonly ProviderSettings[],
  wanted: RegExp,
): Promise<void> {
  await rejects(OrtSession.open(environment, NO_MODEL, { providers }), (error: Error) => {
    match(error.message, wanted);
    return error instanceof OrtError;
  });
}

function providersOn(device: SessionDevice): ProviderSettings[] {
  const config = create(ModelConfigSchema, {
    optimization: {
      executionAccelerators: {
        gpuExecutionAccelerator: [
          { name: "tensorrt", parameters: { precision_mode: "FP16" } },
          { name: "cuda", parameters: { cudnn_conv_algo_search: "2" } },
          { name: "webgpu", parameters: { preferredLayout: "NHWC" } },
        ],
        cpuExecutionAccelerator: [{ name: "openvino", parameters: { num_streams: "2" } }],
      },
    },
  });
  return readProviders(config, device);
}

testStandIn("TensorRT comes before CUDA, each with its device and options", async (library) => {
  await openWith(library, providersOn({ device: "cuda", deviceId: 1 }), /no models/);
  deepEqual(library.takeCalls(), [
    "create tensorrt",
    "update tensorrt device_id=1 trt_fp16_enable=1",
    "append tensorrt",
    "release tensorrt",
    "create cuda",
    "update cuda device_id=1 cudnn_conv_algo_search=DEFAULT",
    "append cuda",
    "release cuda",
    "create session",
    "release options",
  ]);
});

testStandIn("OpenVINO is appended for CPUs, WebGPU by its name", async (library) => {
  await openWith(library, providersOn({ device: "cpu", deviceId: 0 }), /no models/);
  await openWith(library, providersOn({ device: "webgpu", deviceId: 0 }), /no models/);
  deepEqual(library.takeCalls(), [
    "append openvino device_type=CPU num_streams=2",
    "create session",
    "release options",
    "append WebGPU preferredLayout=NHWC",
    "create session",
    "release options",
  ]);
});

testStandIn("a refused option is named, and everything is given back", async (library) => {
  for (const name of ["CUDA", "TensorRT"] as const) {
    await openWith(library, [{ name, options: { nonsense: "1" } }], /nonsense/);
    const what = name.toLowerCase();
    deepEqual(library.takeCalls(), [`create ${what}`, `release ${what}`, "release options"]);
  }
});

testStandIn("listProviders() reads the names that a library has", ({ environment }) => {
  const names = ["Tensorrt", "CUDA", "OpenVINO", "CPU"].map((name) => `${name}ExecutionProvider`);
  deepEqual(listProviders(environment.calls), names);
  return Promise.resolve();
});

Deno.test("the real library looks for the files of its providers, and names them", async () => {
  const environment = OrtEnvironment.open();
  for (const name of ["CUDA", "TensorRT"] as const) {
    const opening = OrtSession.open(environment, NO_MODEL, { providers: [{ name, options: {} }] });
    await rejects(opening, /libonnxruntime_providers_(?:shared|cuda|tensorrt)\.so|Protobuf/);
  }
});
