import assert from "node:assert/strict";
import plugin from "./house_rules.ts";

function lint(filename: string, source: string): string[] {
  return Deno.lint.runPlugin(plugin, filename, source).map((found) => found.id);
}

Deno.test("layers lets imports point down", () => {
  const good = [
    ["server/http/routes.ts", "../core/inference_api.ts"],
    ["server/http/routes.ts", "../../proto/http_codec.ts"],
    ["server/http/routes.ts", "./infer_route.ts"],
    ["server/core/model.ts", "../../backends/backend.ts"],
    ["server/core/scheduler/batch.ts", "../model.ts"],
    ["backends/onnxruntime/model.ts", "../../ffi/onnxruntime/symbols.ts"],
    ["server/cli/serve_command.ts", "../../backends/registry.ts"],
    ["backends/registry.ts", "./onnxruntime/mod.ts"],
    ["mod.ts", "./server/cli/main.ts"],
    ["proto/client/mod.ts", "../tensor.ts"],
    ["server/core/model_test.ts", "../http/routes.ts"],
  ] as const;
  for (const [from, to] of good) {
    assert.deepEqual(lint(from, `import "${to}";\n`), [], `${from} imports ${to}`);
  }
});

Deno.test("layers refuses imports that point up or aside", () => {
  const bad = [
    ["proto/tensor.ts", "../server/core/model.ts"],
    ["proto/tensor.ts", "./client/mod.ts"],
    ["server/core/model.ts", "../http/routes.ts"],
    ["server/core/model.ts", "../../ffi/libc/mod.ts"],
    ["server/core/model.ts", "../../backends/registry.ts"],
    ["server/http/routes.ts", "../grpc/grpc_server.ts"],
    ["server/http/routes.ts", "../core/model_registry.ts"],
    ["server/transport/http1.ts", "../core/log.ts"],
    ["backends/onnxruntime/model.ts", "../identity/mod.ts"],
    ["backends/backend.ts", "./onnxruntime/mod.ts"],
    ["ffi/libc/mod.ts", "../../proto/status.ts"],
    ["mod.ts", "./server/http/routes.ts"],
  ] as const;
  for (const [from, to] of bad) {
    assert.deepEqual(lint(from, `import "${to}";\n`), ["house/layers"], `${from} imports ${to}`);
    assert.deepEqual(lint(from, `export * from "${to}";\n`), ["house/layers"]);
    assert.deepEqual(lint(from, `await import("${to}");\n`), ["house/layers"]);
  }
});

Deno.test("file-length refuses more than 400 lines, except in tables and generated code", () => {
  const long = "let a = 1;\n".repeat(401);
  assert.deepEqual(lint("server/core/model.ts", long), ["house/file-length"]);
  assert.deepEqual(lint("server/core/model.ts", "let a = 1;\n".repeat(400)), []);
  assert.deepEqual(lint("server/cli/flag_table.ts", long), []);
  assert.deepEqual(lint("proto/gen/a_pb.ts", long), []);
});

Deno.test("function-length refuses more than 70 lines", () => {
  const body = (lines: number) => `function f() {\n${"  g();\n".repeat(lines - 2)}}\n`;
  assert.deepEqual(lint("server/core/model.ts", body(71)), ["house/function-length"]);
  assert.deepEqual(lint("server/core/model.ts", body(70)), []);
});

Deno.test("ffi-fence keeps native code in ffi/", () => {
  const source = "Deno.dlopen('x', {}); new Deno.UnsafePointerView(p);\n";
  assert.deepEqual(lint("backends/onnxruntime/model.ts", source), [
    "house/ffi-fence",
    "house/ffi-fence",
  ]);
  assert.deepEqual(lint("ffi/libc/mod.ts", source), []);
});

Deno.test("listener-fence keeps listeners in the transport", () => {
  assert.deepEqual(lint("server/core/a.ts", "Deno.serve(() => x);\n"), ["house/listener-fence"]);
  assert.deepEqual(lint("server/http/a.ts", 'import { x } from "node:http2";\n'), [
    "house/listener-fence",
  ]);
  assert.deepEqual(lint("server/transport/a.ts", "Deno.listen({ port: 0 });\n"), []);
});

Deno.test("console-fence lets only programs print", () => {
  assert.deepEqual(lint("server/core/a.ts", "console.log(1);\n"), ["house/console-fence"]);
  assert.deepEqual(lint("scripts/a.ts", "console.log(1);\n"), []);
});

Deno.test("no-default-export refuses default exports", () => {
  assert.deepEqual(lint("server/core/a.ts", "export default 1;\n"), ["house/no-default-export"]);
  assert.deepEqual(lint("backends/typescript/model.ts", "export default 1;\n"), [
    "house/no-default-export",
  ]);
  assert.deepEqual(lint("examples/models/a/1/model.ts", "export default class {}\n"), []);
});

Deno.test("banned-names refuses names that say nothing", () => {
  assert.deepEqual(lint("server/core/string_utils.ts", "x;\n"), ["house/banned-names"]);
  assert.deepEqual(lint("server/core/a.ts", "interface IScheduler {}\n"), ["house/banned-names"]);
  assert.deepEqual(lint("server/core/a.ts", "class ModelManager {}\n"), ["house/banned-names"]);
  assert.deepEqual(lint("server/core/a.ts", "interface InferRequest {}\n"), []);
  assert.deepEqual(lint("server/transport/a.ts", "interface HttpHandler {}\n"), []);
});

Deno.test("error-message judges texts of programmer mistakes", () => {
  const of = (text: string) => lint("server/core/a.ts", `throw new TypeError("${text}");\n`);
  assert.deepEqual(of("Cannot read x: expected a number"), []);
  assert.deepEqual(of("Cannot read x."), ["house/error-message"]);
  assert.deepEqual(of("cannot read x"), ["house/error-message"]);
  assert.deepEqual(of("You don't say"), ["house/error-message"]);
});
