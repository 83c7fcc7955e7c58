import assert from "node:assert/strict";
import { decodeInferRequest } from "./http_codec.ts";
import { decodeGenerateRequest } from "./http_codec_generate.ts";
import { JsonReader } from "./json_reader.ts";
import { parseJson } from "./json_value.ts";
import { ServerError } from "./status.ts";

const SEEDS = [
  `{"id":"x","parameters":{"sequence_id":1,"a":[1,{"b":null}],"c":-1.5e3},"inputs":[{"name":"I",` +
  `"datatype":"FP32","shape":[2,2],"data":[[1.25,NaN],[-Infinity,1e-7]]},{"name":"B","datatype":` +
  `"BYTES","shape":[2],"data":["a\\u00e9\\ud83d\\ude00","\\n"]}],"outputs":[{"name":"O"}]}`,
  `{"inputs":[{"data":[true,false],"name":"I","datatype":"BOOL","shape":[2]},{"name":"J","datatype":` +
  `"INT64","shape":[1],"parameters":{"binary_data_size":8}}],"outputs":[{"name":"O","parameters":` +
  `{"binary_data":true,"classification":2}}]}12345678`,
  `{"text":"hi","parameters":{"k":5},"x":[1,2,3]}`,
];
const FRAGMENTS = [
  "[",
  "]",
  "{",
  "}",
  ",",
  ":",
  '"',
  "\\",
  "\\u",
  "0",
  "-",
  "1e9",
  ".",
  "null",
  " ",
];

function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A seed with a few bytes changed, cut out, doubled or put in. */
function mutate(bytes: Uint8Array, random: () => number): Uint8Array {
  let mutated = [...bytes];
  const pick = (count: number) => Math.floor(random() * count);
  for (let times = 1 + pick(4); times > 0; times--) {
    const at = pick(mutated.length + 1);
    switch (pick(5)) {
      case 0:
        mutated[at] = pick(256);
        break;
      case 1:
        mutated.splice(at, 1 + pick(8));
        break;
      case 2:
        mutated.splice(at, 0, ...new TextEncoder().encode(FRAGMENTS[pick(FRAGMENTS.length)]));
        break;
      case 3:
        mutated.splice(at, 0, ...mutated.slice(at, at + pick(40)));
        break;
      default:
        mutated = mutated.slice(0, at);
    }
  }
  return Uint8Array.from(mutated, (byte) => byte ?? 0);
}

/** Runs and lets nothing but a ServerError of the client's making pass. */
function attempt(run: () => unknown, body: Uint8Array): void {
  try {
    run();
  } catch (reason) {
    if (reason instanceof ServerError && reason.code === "INVALID_ARG") return;
    assert.fail(
      `${reason instanceof Error ? reason.stack : reason}\n${new TextDecoder().decode(body)}`,
    );
  }
}

Deno.test("decoding mutated requests only ever throws INVALID_ARG", () => {
  const random = createRandom(7);
  const seeds = SEEDS.map((seed) => new TextEncoder().encode(seed));
  for (let round = 0; round < 6_000; round++) {
    const body = mutate(seeds[round % seeds.length]!, random);
    const headerLength = Math.min(body.length, Math.floor(random() * (body.length + 20)));
    const target = { modelName: "m", modelVersion: "", maxInputBytes: 4096, headerLength };
    attempt(() => decodeInferRequest(body, target), body);
    const inputs = [{ name: "x", datatype: "FP32", shape: [-1] } as const];
    attempt(() => decodeGenerateRequest(body, { ...target, inputs }), body);
    attempt(() => parseJson(body), body);
    attempt(() => new JsonReader(body).skipValue(), body);
  }
});

Deno.test("parseJson() and skipValue() agree on what is well-formed, and with JSON.parse()", () => {
  const random = createRandom(11);
  const seed = new TextEncoder().encode(SEEDS[0]!.replace(/NaN|-Infinity/g, "0"));
  const accepts = (run: () => unknown) => {
    try {
      run();
      return true;
    } catch {
      return false;
    }
  };
  for (let round = 0; round < 6_000; round++) {
    const body = mutate(seed, random);
    const text = new TextDecoder().decode(body);
    const isOurs = accepts(() => parseJson(body));
    const isSkipped = accepts(() => {
      const reader = new JsonReader(body);
      reader.skipValue();
      reader.finish();
    });
    assert.equal(isOurs, isSkipped, text);
    // Where we are more lenient (words) or more strict (UTF-8, surrogates, range) JSON.parse has no say.
    if (/NaN|Inf|\ufffd|\\u[dD][89a-fA-F]|\d[eE]\d{3}/.test(text)) continue;
    assert.equal(isOurs, accepts(() => JSON.parse(text)), text);
  }
});
