import assert from "node:assert/strict";
import { readImagenetLabels, readMagikaLabels, readOnnxMetadata } from "./model_texts.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

Deno.test("readMagikaLabels() writes a line for each label", () => {
  const settings = encode(JSON.stringify({ target_labels_space: ["a", "b"] }));
  assert.equal(decode(readMagikaLabels(settings)), "a\nb\n");
});

Deno.test("readImagenetLabels() takes the first name of each class, in the order of the classes", () => {
  const lemmas = encode("n1\ttench, Tinca tinca\nn2\tgoldfish\nn3\tnot asked for\n");
  assert.equal(decode(readImagenetLabels(encode("n2\nn1\nn9\n"), lemmas)), "goldfish\ntench\nn9\n");
});

Deno.test("readOnnxMetadata() finds a value by its key", () => {
  const entry = (key: string, value: string) => {
    const body = [10, key.length, ...encode(key), 18, value.length, ...encode(value)];
    return [(14 << 3) + 2, body.length, ...body];
  };
  const head = [8, 200, 1, (3 << 3) + 1, 1, 2, 3, 4, 5, 6, 7, 8, (4 << 3) + 5, 1, 2, 3, 4];
  const model = Uint8Array.from([...head, ...entry("other", "x"), ...entry("character", "a\nb")]);
  assert.equal(decode(readOnnxMetadata(model, "character")), "a\nb");
  assert.throws(() => readOnnxMetadata(model, "none"), /The ONNX file has no metadata none/);
});
