import assert from "node:assert/strict";
import { chooseSignature } from "./choose_signature.ts";

const NO_WISH = { tag: "", signature: "" };

function graph(tags: readonly string[], ...names: string[]) {
  const signatures = new Map(names.map((name) => [name, { name, inputs: [], outputs: [] }]));
  return { tags, version: "", restores: false, signatures };
}

Deno.test("chooseSignature() takes tag 'serve' and 'serving_default'", () => {
  const graphs = [
    graph(["train"], "serving_default"),
    graph(["serve"], "other", "serving_default"),
  ];
  const choice = chooseSignature(graphs, NO_WISH, "m");
  assert.equal(choice.graph, graphs[1]);
  assert.equal(choice.signature.name, "serving_default");
  assert.equal(choice.isGuess, false);
});

Deno.test("chooseSignature() takes what is asked for; tags in any order", () => {
  const graphs = [graph(["serve"], "a"), graph(["serve", "gpu"], "a", "b")];
  const choice = chooseSignature(graphs, { tag: "gpu, serve", signature: "b" }, "m");
  assert.equal(choice.graph, graphs[1]);
  assert.equal(choice.signature.name, "b");
});

Deno.test("chooseSignature() takes an only signature beside those of TensorFlow itself", () => {
  const choice = chooseSignature([graph(["serve"], "__saved_model_init_op", "x")], NO_WISH, "m");
  assert.equal(choice.signature.name, "x");
  assert.equal(choice.isGuess, true);
});

Deno.test("chooseSignature() lists what there is, and the parameter", () => {
  const refuse = (graphs: ReturnType<typeof graph>[], wish: typeof NO_WISH, expected: RegExp) =>
    assert.throws(() => chooseSignature(graphs, wish, "m"), (error: Error) => {
      assert.match(error.message, expected);
      return true;
    });
  refuse([graph(["serve"], "b", "a")], NO_WISH, /no signature 'serving_default'.*: 'a', 'b'/);
  refuse([graph(["serve"], "a")], { tag: "", signature: "b" }, /no signature 'b'.*: 'a'/);
  refuse([graph(["serve"])], NO_WISH, /signatures of the graph with tags 'serve': none/);
  refuse([graph(["train"], "a"), graph([])], NO_WISH, /with tag 'serve'.*tags 'train'; \(none\)/);
});

Deno.test("chooseSignature() lists a part of very many", () => {
  const many = Array.from({ length: 40 }, (_, number) => `s${number}`);
  const graphs = [graph(["serve"], ...many)];
  assert.throws(() => chooseSignature(graphs, NO_WISH, "m"), /'s37' and 8 more/);
  assert.throws(
    () => chooseSignature([graph(many)], NO_WISH, "m"),
    /have the tags 's0,.*,s31 and 8 more'/,
  );
});
