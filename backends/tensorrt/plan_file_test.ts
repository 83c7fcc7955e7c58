import assert from "node:assert/strict";
import { planHint } from "./plan_file.ts";

const HINTS: readonly [string, RegExp][] = [
  [
    "The engine plan file is not compatible with this version of TensorRT, expecting library " +
    "version 10.0.1.6 got 8.6.1.6, please rebuild.",
    /build the plan again with TensorRT 10\.3\.0, or serve it with.*library=/,
  ],
  [
    "Serialization (Serialization assertion stdVersionRead == serializationVersion failed.Version tag does not match",
    /build the plan again with TensorRT 10\.3\.0/,
  ],
  [
    "The engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 7.5",
    /on this kind of GPU.*cc_model_filenames/,
  ],
  ["Serialization assertion plan->header.size == blobSize failed.", /cut off or damaged/],
  ["Cuda Runtime (out of memory)", /too little free memory/],
  ["Something nobody has seen", /^$/],
];

Deno.test("planHint() tells what to do about a plan that TensorRT refuses", () => {
  for (const [reason, hint] of HINTS) assert.match(planHint(reason, "10.3.0"), hint, reason);
});
