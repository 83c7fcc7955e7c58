/**
 * Runs ONNX node tests on WebGPU (or CUDA, or OpenVINO) alone, no node on ONNX Runtime's own provider for CPUs, and
 * compares with the answers of that.
 *
 *   deno run -A tests/native/webgpu/run_node_cases.ts DATA_FOLDER LIST_FILE [cuda|openvino]
 *
 * Prints a line of JSON per test: its name, and what is wrong with it. A process of its own, since a graphics driver may
 * end it.
 */
import type { InstancePlacement } from "../../../backends/backend.ts";
import { ModelInstanceGroup_Kind } from "../../../proto/gen/model_config_pb.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { type ConfigInit, openInstance, outputsOf } from "../../backends/fixture.ts";
import { readGraphTensors, readTensorProto } from "../../fixtures/onnx_proto.ts";
import { tensorsAgree } from "../../fixtures/tensor_compare.ts";

/** What became of a test. */
export interface CaseResult {
  readonly name: string;
  readonly fault?: string | undefined;
}

type CaseDevice = "webgpu" | "cuda" | "openvino";

function configOn(device: CaseDevice): ConfigInit {
  const parameters = {
    "session.disable_cpu_ep_fallback": { stringValue: "1" },
    "intra_op_thread_count": { stringValue: "1" },
  };
  if (device === "openvino") {
    const executionAccelerators = { cpuExecutionAccelerator: [{ name: device }] };
    return { parameters, optimization: { executionAccelerators } };
  }
  return {
    instanceGroup: [{ name: "m_0", kind: ModelInstanceGroup_Kind.GPU, gpus: [0], count: 1 }],
    parameters: {
      ...(device === "webgpu" ? { "nereid.device.m_0": { stringValue: device } } : {}),
      ...parameters,
    },
  };
}

/** The inputs of every data set of a test. */
function readInputs(folder: string, model: Uint8Array): Tensor[][] {
  const { inputs } = readGraphTensors(model);
  const sets = [...Deno.readDirSync(folder)].filter(({ name }) => name.startsWith("test_data_set"));
  return sets.map(({ name: set }) =>
    inputs.flatMap(({ name }, index) => {
      try {
        const bytes = Deno.readFileSync(`${folder}/${set}/input_${index}.pb`);
        return { ...readTensorProto(bytes), name };
      } catch (error) {
        if (error instanceof Deno.errors.NotFound) return [];
        throw error;
      }
    })
  );
}

function placementOn(device: CaseDevice): Partial<InstancePlacement> {
  return device === "openvino" ? {} : { kind: "KIND_GPU", device };
}

async function answer(
  model: Uint8Array,
  inputSets: readonly Tensor[][],
  device?: CaseDevice,
): Promise<Tensor[][]> {
  await using opened = await openInstance("onnxruntime", {
    model,
    ...(device === undefined ? {} : { config: configOn(device), placement: placementOn(device) }),
  });
  const results: Tensor[][] = [];
  for (const inputs of inputSets) {
    const { outcomes } = await opened.instance.execute([opened.request(inputs)]);
    results.push(
      outputsOf(outcomes[0]).map((output) => ({ ...output, data: output.data.slice() })),
    );
    (outcomes[0] as { release?: () => void }).release?.();
  }
  return results;
}

async function runCase(folder: string, device: CaseDevice): Promise<string | undefined> {
  const model = await Deno.readFile(`${folder}/model.onnx`);
  const inputSets = readInputs(folder, model);
  const given = await answer(model, inputSets, device);
  const wanted = await answer(model, inputSets);
  for (const [set, tensors] of wanted.entries()) {
    for (const [index, tensor] of tensors.entries()) {
      const fault = tensorsAgree(given[set]![index]!, tensor);
      if (fault !== undefined) return fault;
    }
  }
}

if (import.meta.main) {
  const [root, listFile, device = "webgpu"] = Deno.args as [string, string, CaseDevice?];
  const encoder = new TextEncoder();
  for (const name of (await Deno.readTextFile(listFile)).trim().split("\n")) {
    const fault = await runCase(`${root}/${name}`, device).catch((error: Error) => error.message);
    const result: CaseResult = { name, fault };
    await Deno.stdout.write(encoder.encode(`${JSON.stringify(result)}\n`));
  }
}
