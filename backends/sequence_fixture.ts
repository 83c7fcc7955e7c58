import { create } from "@bufbuild/protobuf";
import {
  DataType,
  type ModelConfig,
  ModelConfigSchema,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../proto/gen/model_config_pb.ts";
import type { Tensor } from "../proto/tensor.ts";
import type { Backend, BackendContext, ModelInstance } from "./backend.ts";
import { fakeHost } from "./model_host_fixture.ts";
import type { Timers } from "./pause.ts";

/** Virtual time for backends. */
interface FixtureClock extends Timers {
  now(): number;
}

/** A configuration with INPUT and OUTPUT of INT32 and one free dimension, max_batch_size 4, and so many controls. */
export function sequenceConfig(given: {
  readonly controls: readonly ("START" | "END" | "READY" | "CORRID")[];
  readonly parameters?: Readonly<Record<string, string>>;
  readonly inputName?: string;
  readonly correlationType?: DataType;
}): ModelConfig {
  const int32FalseTrue = [0, 1];
  const control = {
    START: { kind: ControlKind.CONTROL_SEQUENCE_START, int32FalseTrue },
    END: { kind: ControlKind.CONTROL_SEQUENCE_END, int32FalseTrue },
    READY: { kind: ControlKind.CONTROL_SEQUENCE_READY, int32FalseTrue },
    CORRID: {
      kind: ControlKind.CONTROL_SEQUENCE_CORRID,
      dataType: given.correlationType ?? DataType.TYPE_UINT64,
    },
  };
  const tensor = { dataType: DataType.TYPE_INT32, dims: [-1n] };
  return create(ModelConfigSchema, {
    name: "m",
    maxBatchSize: 4,
    input: [{ name: given.inputName ?? "INPUT", ...tensor }],
    output: [{ name: "OUTPUT", ...tensor }],
    schedulingChoice: {
      case: "sequenceBatching",
      value: { controlInput: given.controls.map((name) => ({ name, control: [control[name]] })) },
    },
    parameters: Object.fromEntries(
      Object.entries(given.parameters ?? {}).map(([key, stringValue]) => [key, { stringValue }]),
    ),
  });
}

/** A control as the sequence batcher adds it: one INT32 element. */
export function controlInput(name: string, value: number): Tensor {
  const data = new Uint8Array(Int32Array.of(value).buffer);
  return { name, datatype: "INT32", shape: [1, 1], data };
}

/** Opens a model of a configuration alone, in virtual time, and makes an instance. */
export async function createFixtureInstance(
  createBackend: (context: BackendContext, timers: Timers) => Backend,
  config: ModelConfig,
  clock: FixtureClock,
): Promise<ModelInstance> {
  const context = {
    settings: new Map(),
    log: { info() {}, warning() {}, error() {}, verbose() {} },
    now: () => clock.now(),
    countBatchRetry() {},
    host: fakeHost(),
  };
  const backend = createBackend(context, clock);
  const source = { name: "m", version: 1, modelDirectory: "/m", versionDirectory: "/m/1", config };
  await backend.autoComplete(source);
  const model = await backend.openModel(source);
  return await model.createInstance({ name: "m_0", kind: "KIND_CPU", deviceId: 0 });
}
