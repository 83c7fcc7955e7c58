import assert from "node:assert/strict";
import {
  DataType,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import { storedZip, torchScript } from "../fixtures/torchscript.ts";
import { type ConfigInit, openInstance, type OpenOptions } from "./fixture.ts";
import { ADD, library, open, row } from "./pytorch_fixture.ts";

const ignore = "reason" in library;
const { TYPE_INT32, TYPE_STRING, TYPE_UINT32 } = DataType;

const TWO = { input: [row("x"), row("y")], output: [row("OUTPUT__0")] };
const ONE = { input: [row("INPUT__0")], output: [row("OUTPUT__0")] };
const takes = (type: string) =>
  torchScript(
    `\ndef forward(self: __torch__.M, x: ${type}) -> Tensor:\n  return torch.ones([1])\n`,
  );
const NO_FORWARD = torchScript(
  `\ndef other(self: __torch__.M, x: Tensor) -> Tensor:\n  return x\n`,
);
const sequence = (name: string, dataType: DataType): ConfigInit => ({
  maxBatchSize: 1,
  ...TWO,
  input: [row("INPUT__0")],
  schedulingChoice: {
    case: "sequenceBatching",
    value: {
      controlInput: [{ name, control: [{ kind: ControlKind.CONTROL_SEQUENCE_CORRID, dataType }] }],
    },
  },
});

const REFUSED: Readonly<Record<string, readonly [Uint8Array, OpenOptions, RegExp]>> = {
  "too few inputs": [
    torchScript(ADD),
    { config: { ...TWO, input: [row("x")] } },
    /unable to load model 'm', configuration expects 1 inputs, model provides 2.*forward takes: x, y/s,
  ],
  "too many inputs": [
    torchScript(ADD),
    { config: { ...TWO, input: [row("a"), row("b"), row("c")] } },
    /unable to load model 'm', configuration expects 3 inputs, model provides 2/,
  ],
  "an index beyond the arguments": [
    torchScript(ADD),
    { config: { ...TWO, input: [row("INPUT__0"), row("INPUT__2")] } },
    /expected one of these names, or INPUT__0 to INPUT__1/,
  ],
  "an output beyond what is returned": [
    torchScript(ADD),
    { config: { ...TWO, output: [row("OUTPUT__2")] } },
    /output 'OUTPUT__2' .* number 2 of what forward returns, which is Tuple\[Tensor, Tensor\]/,
  ],
  "no inputs": [
    torchScript(ADD),
    { config: { output: [row("OUTPUT__0")] } },
    /model configuration must contain at least one input, none were specified.*neither their types/s,
  ],
  "a datatype that PyTorch has not": [
    torchScript(ADD),
    { config: { ...TWO, input: [row("x"), row("y", TYPE_UINT32)] } },
    /unsupported datatype TYPE_UINT32 for input 'y' for model 'm'/,
  ],
  "strings with two dimensions": [
    takes("List[str]"),
    { config: { ...ONE, input: [row("x", TYPE_STRING, [2n, 2n])] } },
    /Triton only supports 1 dimensional List of String as input for 'x' for model 'm'/,
  ],
  "strings for a tensor": [
    takes("Tensor"),
    { config: { ...ONE, input: [row("x", TYPE_STRING, [1n])] } },
    /input 'x' of model 'm' has TYPE_STRING, argument 'x' of forward is Tensor/,
  ],
  "an argument that is a number": [
    takes("int"),
    { config: ONE },
    /An input of type 'int' was detected in the model.*argument 'x' of forward/s,
  ],
  "a control without a place": [
    torchScript(ADD),
    { config: sequence("CORRID", TYPE_INT32) },
    /input 'CORRID' does not follow <name>__<index> naming convention/,
  ],
  "a control of a type that PyTorch has not": [
    torchScript(ADD),
    { config: sequence("CORRID__1", TYPE_UINT32) },
    /input 'CORRID__1' type 'TYPE_UINT32' is not supported by PyTorch/,
  ],
  "a module without forward": [
    NO_FORWARD,
    { config: ONE },
    /failed to load model 'm': the module has no method 'forward'.*torch\.jit\.script/s,
  ],
  "a pickle": [
    Uint8Array.from([0x80, 4, 0x7d, 0x94, 0x2e]),
    { config: ONE },
    /failed to load model 'm': .*what torch\.save writes \(a pickle of weights or of a module\)/s,
  ],
  "a checkpoint": [
    storedZip({
      "archive/data.pkl": Uint8Array.from([0x80, 2, 0x7d, 0x2e]),
      "archive/version": new TextEncoder().encode("3\n"),
    }),
    { config: ONE },
    /failed to load model 'm': .*constants\.pkl.*what torch\.save writes/s,
  ],
  "a file that ends early": [
    torchScript(ADD).subarray(0, 200),
    { config: ONE },
    /failed to load model 'm': PytorchStreamReader failed.*torch\.jit/s,
  ],
  "code that is none": [
    torchScript(
      "\ndef forward(self: __torch__.M, x: Tensor) -> Tensor:\n  return torch.nothing(x)\n",
    ),
    { config: ONE },
    /failed to load model 'm': .*torch\.nothing/s,
  ],
  "an empty file": [new Uint8Array(0), { config: ONE }, /failed to load model 'm': /],
  "a flag that is none": [
    torchScript(ADD),
    { config: { ...TWO, parameters: { INFERENCE_MODE: { stringValue: "maybe" } } } },
    /failed to convert 'maybe' to boolean for parameter 'INFERENCE_MODE' of model 'm'/,
  ],
  "a count that is none": [
    torchScript(ADD),
    { config: { ...TWO, parameters: { INTRA_OP_THREAD_COUNT: { stringValue: "many" } } } },
    /failed to convert 'many' to integral number for parameter 'INTRA_OP_THREAD_COUNT'/,
  ],
  "another platform": [
    torchScript(ADD),
    { config: { ...TWO, platform: "pytorch_mobile" } },
    /platform 'pytorch_mobile', backend 'pytorch' serves 'pytorch_libtorch'/,
  ],
  "an instance on a GPU": [
    torchScript(ADD),
    { config: TWO, placement: { kind: "KIND_GPU" } },
    /instance 'm_0' of model 'm' cannot run on GPU 0: libtorch .* is built without CUDA/,
  ],
  "a package that is none": [
    torchScript(ADD),
    {
      config: { ...TWO, platform: "torch_aoti" },
      files: { "model.pt2": new TextEncoder().encode("no package") },
    },
    /failed to load model 'm': .*torch\._inductor\.aoti_compile_and_package|libtorch 1\..* cannot load: 2\.6/s,
  ],
};

for (const [what, [model, options, expected]] of Object.entries(REFUSED)) {
  Deno.test({
    name: `pytorch: a load with ${what} fails with the place and the way out`,
    ignore,
    fn: async () => {
      await assert.rejects(open(model, options), (error: Error) => {
        assert.match(error.message, expected);
        return true;
      });
    },
  });
}

Deno.test("pytorch: a missing library is told with the package that brings it", async () => {
  await assert.rejects(
    openInstance("pytorch", {
      files: { "model.pt": torchScript(ADD) },
      config: TWO,
      settings: { library: "/nowhere/libtorch.so" },
    }),
    /Cannot find libtorch; tried: .*'\/nowhere\/libtorch\.so': no libtorch\.so.*pip install torch/s,
  );
});
