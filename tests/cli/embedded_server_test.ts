import assert from "node:assert/strict";
import { createServer, ServerError } from "../../mod.ts";
import { parseFlags } from "../../server/cli/flags.ts";
import { openLog } from "../../server/cli/open_log.ts";
import { createProgram } from "../../server/cli/program.ts";
import { readServeOptions } from "../../server/cli/serve_options.ts";
import { makeRepository } from "./server_run.ts";

const REQUEST = {
  modelName: "echo",
  inputs: [{ name: "INPUT0", datatype: "FP32", shape: [2], data: new Float32Array([1, 2.5]) }],
} as const;

Deno.test("createServer() listens where it was told, and frees everything at its end", async () => {
  await using repository = await makeRepository();
  const server = createServer({
    modelRepository: repository.path,
    http: { address: "127.0.0.1", port: 0 },
    metrics: { address: "127.0.0.1", port: 0 },
    flags: [`--log-file=${repository.path}.log`, "--log-info=true"],
  });
  assert.equal(server.isReady(), false);
  const { models, addresses } = await server.start();
  assert.deepEqual(models.map(({ name, state }) => [name, state]), [["echo", "READY"]]);
  assert.deepEqual(Object.keys(addresses).sort(), ["http", "metrics"]);
  assert.equal((await fetch(`http://${addresses["http"]}/v2/health/ready`)).status, 200);
  const { outputs } = await server.infer(REQUEST);
  assert.deepEqual(new Float32Array(outputs[0]!.data.slice().buffer), REQUEST.inputs[0].data);
  assert.match(await (await fetch(`http://${addresses["metrics"]}/metrics`)).text(), /success.* 1/);
  await assert.rejects(server.start(), TypeError);
  assert.equal(await server.stop(), true);
  assert.equal(await server.stop(), true, "a second stop changes nothing");
  await assert.rejects(server.infer(REQUEST), { code: "NOT_FOUND" });
  await assert.rejects(fetch(`http://${addresses["http"]}/v2/health/ready`));
  assert.match(await Deno.readTextFile(`${repository.path}.log`), /Started HTTPService at/);
  await Deno.remove(`${repository.path}.log`);
});

Deno.test("createServer() answers with buffers that are the caller's own", async () => {
  await using repository = await makeRepository();
  await using server = createServer({ modelRepository: repository.path });
  await server.start();
  const data = new Float32Array([1, 2.5]);
  const { outputs } = await server.infer({ ...REQUEST, inputs: [{ ...REQUEST.inputs[0], data }] });
  data.fill(0);
  assert.deepEqual(new Float32Array(outputs[0]!.data.buffer), new Float32Array([1, 2.5]));
});

Deno.test("createServer() opens no port when it is stopped while it starts", async () => {
  await using repository = await makeRepository();
  const server = createServer({
    modelRepository: repository.path,
    http: { address: "127.0.0.1", port: 0 },
  });
  const starting = server.start();
  const refused = assert.rejects(starting, ServerError);
  assert.equal(await server.stop(), true);
  await refused;
});

Deno.test("createServer() closes what it has opened when a port is taken", async () => {
  await using repository = await makeRepository();
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  await using server = createServer({
    modelRepository: repository.path,
    grpc: { address: "127.0.0.1", port: 0 },
    http: { address: "127.0.0.1", port: taken.addr.port },
  });
  await assert.rejects(server.start(), {
    code: "UNAVAILABLE",
    message: /HTTP service: .*already in use/,
  });
});

Deno.test("Program.listen() opens nothing once the program is being stopped", async () => {
  await using repository = await makeRepository();
  const ports = ["http", "grpc", "metrics"].map((name) => `--${name}-port=0`);
  const flags = [`--model-repository=${repository.path}`, "--log-info=false", ...ports];
  const options = readServeOptions(parseFlags(flags));
  using log = openLog(options.log);
  for (const stopsFirst of [true, false]) {
    const program = createProgram(options, log);
    await program.load();
    const early = stopsFirst ? program.stop(1000) : undefined;
    const listening = assert.rejects(program.listen(), { message: "Server exiting" });
    assert.equal(await (early ?? program.stop(1000)), true);
    await listening;
    assert.deepEqual(program.services, []);
  }
});
