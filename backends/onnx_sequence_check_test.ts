import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../proto/gen/model_config_pb.ts";
import { configFaults } from "../proto/model_config.ts";
import { sequenceTensorChecks } from "./onnx_sequence_check.ts";

Deno.test("sequenceTensorChecks() checks every control and state by itself", () => {
  const config = create(ModelConfigSchema, {
    schedulingChoice: {
      case: "sequenceBatching",
      value: {
        controlInput: [
          { name: "START", control: [{ int32FalseTrue: [0, 1] }] },
          { name: "END", control: [{ int32FalseTrue: [0, 1] }] },
        ],
        state: [{ inputName: "in", outputName: "out", dataType: DataType.TYPE_FP32 }],
      },
    },
  });
  const none = new Map();
  const tensors = { modelName: "m", isBatching: true, inputs: none, outputs: none };
  const faults = sequenceTensorChecks(config, { ...tensors, initializers: none }).map((each) => {
    try {
      each.check();
    } catch (reason) {
      return `${each.path}: ${configFaults(reason).issues[0]?.message}`;
    }
  });
  const absent = "but model does not provide that input";
  assert.deepEqual(faults, [
    `sequence_batching.control_input[0].control[0]: configuration specified sequence control 'START', ${absent}`,
    `sequence_batching.control_input[1].control[0]: configuration specified sequence control 'END', ${absent}`,
    "sequence_batching.state[0]: configuration specified sequence state input 'in', but model 'm' provides only ",
  ]);
  assert.deepEqual(
    sequenceTensorChecks(create(ModelConfigSchema), { ...tensors, initializers: none }),
    [],
  );
});
