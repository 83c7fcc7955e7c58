import assert from "node:assert/strict";
import { makeRepository, runServer } from "./server_run.ts";

async function infer(address: string): Promise<unknown> {
  const response = await fetch(`${address}/v2/models/echo/infer`, {
    method: "POST",
    body: JSON.stringify({
      inputs: [{ name: "INPUT0", datatype: "FP32", shape: [2], data: [1, 2.5] }],
    }),
  });
  const answer = await response.json();
  return answer.outputs?.[0]?.data ?? answer;
}

Deno.test("a wrong command line ends with exit code 1 and a text that names the flag", async () => {
  await using repository = await makeRepository();
  const lines = [
    ["--no-such-flag=1", "no-such-flag"],
    ["--model-control-mode=sometimes", "model-control-mode"],
    ["--exit-on-error=perhaps", "perhaps"],
    ["--exit-timeout-secs=soon", "exit-timeout-secs"],
    ["--log-format=fancy", "log-format"],
    ["--load-model=m", "load-model"],
    ["--cache-config=local", "No cache specified"],
    ["--cache-config=local,size=0", "Failed to initialize LocalCache"],
    ["--cache-config=redis,host=x", "libtritoncache_redis.so"],
  ] as const;
  for (const [flag, fragment] of lines) {
    await using run = runServer(`--model-repository=${repository.path}`, flag);
    assert.equal(await run.exitCode(), 1, flag);
    assert.ok(run.stderr().includes(fragment), run.stderr().slice(-300));
  }
});

Deno.test("--help prints the options", async () => {
  await using run = runServer("--help");
  assert.equal(await run.exitCode(), 1);
  assert.match(run.stderr(), /--model-repository=PATH/);
});

Deno.test("the server prints its addresses, serves, and ends with 0 at SIGTERM", async () => {
  await using repository = await makeRepository();
  await using run = runServer(`--model-repository=${repository.path}`);
  const address = await run.address("HTTP");
  assert.deepEqual(await infer(address), [1, 2.5]);
  assert.match(run.stdout(), /echo +1 +READY +\d+ ms/);
  const metrics = await fetch(`${await run.address("Metrics")}/metrics`);
  assert.match(await metrics.text(), /nv_inference_request_success\{.*model="echo".*\} 1/);
  run.kill("SIGTERM");
  assert.equal(await run.exitCode(), 0);
  assert.match(run.stdout(), /Signal \(15\) received\./);
});

Deno.test("SIGINT ends the server too, and an idle connection does not hold it up", async () => {
  await using repository = await makeRepository();
  await using run = runServer(`--model-repository=${repository.path}`, "--exit-timeout-secs=10");
  const { hostname, port } = new URL(await run.address("HTTP"));
  using connection = await Deno.connect({ hostname, port: Number(port) });
  await connection.write(
    new TextEncoder().encode("GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n"),
  );
  await connection.read(new Uint8Array(1000));
  const began = performance.now();
  run.kill("SIGINT");
  assert.equal(await run.exitCode(), 0);
  assert.ok(performance.now() - began < 5000);
});

Deno.test("without a repository the start fails, or the process stays without being live", async () => {
  {
    await using run = runServer();
    assert.equal(await run.exitCode(), 1);
    assert.match(run.stderr(), /creating server: Invalid argument - --model-repository must be/);
  }
  await using run = runServer("--exit-on-error=false");
  const address = await run.address("HTTP");
  for (const path of ["live", "ready"]) {
    const response = await fetch(`${address}/v2/health/${path}`);
    await response.body?.cancel();
    assert.notEqual(response.status, 200);
  }
});

Deno.test("--exit-on-error decides what a model that fails means", async () => {
  await using repository = await makeRepository({ bad: "bogus: 1" });
  const flag = `--model-repository=${repository.path}`;
  {
    await using run = runServer(flag);
    assert.equal(await run.exitCode(), 1);
    assert.match(run.stderr(), /error: creating server: Internal - failed to load all models/);
    assert.match(run.stdout(), /bad[\s\S]*bogus/);
    assert.match(run.stderr(), /1 of 2 model versions .*--exit-on-error=false.*\n$/);
  }
  await using run = runServer(flag, "--exit-on-error", "FALSE", "--strict-readiness", "off");
  const address = await run.address("HTTP");
  const ready = await fetch(`${address}/v2/health/ready`);
  await ready.body?.cancel();
  assert.equal(ready.status, 200);
  assert.deepEqual(await infer(address), [1, 2.5]);
});

Deno.test("a port in use ends the start with exit code 1 and is named", async () => {
  await using repository = await makeRepository();
  using taken = Deno.listen({ hostname: "0.0.0.0", port: 0 });
  const { port } = taken.addr as Deno.NetAddr;
  for (const flag of [`--http-port=${port}`, `--grpc-port=${port}`, `--metrics-port=${port}`]) {
    await using run = runServer(`--model-repository=${repository.path}`, flag);
    assert.equal(await run.exitCode(), 1, flag);
    assert.ok(run.stderr().includes(String(port)), run.stderr());
    assert.ok(run.stderr().includes(`another one is named with ${flag.split("=")[0]}`));
    const fault = `service: Unavailable - Socket '0.0.0.0:${port}' already in use`;
    assert.match(run.stderr(), /failed to start (HTTP|GRPC|Metrics) service/);
    assert.ok(run.stderr().includes(fault), run.stderr());
  }
});

Deno.test("two services at one port are refused", async () => {
  await using run = runServer("--model-repository=/", "--http-port=20799", "--grpc-port=20799");
  assert.equal(await run.exitCode(), 1);
  assert.match(run.stderr(), /same address and port 0\.0\.0\.0:20799/);
});

Deno.test("services can be switched off, and a unix socket serves", async () => {
  await using repository = await makeRepository();
  const socket = `${repository.path}.sock`;
  for (const engine of ["native", "deno"]) {
    // What a server that was killed has left behind.
    Deno.listen({ transport: "unix", path: socket }).close();
    await using run = runServer(
      `--model-repository=${repository.path}`,
      `--http-address=unix:${socket}`,
      `--http-engine=${engine}`,
      "--allow-grpc=false",
      "--allow-metrics=false",
    );
    assert.equal(await run.address("HTTP"), `unix:${socket}`);
    assert.doesNotMatch(run.stdout(), /gRPC|Metrics/);
    using client = Deno.createHttpClient({ proxy: { transport: "unix", path: socket } });
    const response = await fetch("http://localhost/v2/health/live", { client });
    await response.body?.cancel();
    assert.equal(response.status, 200);
    run.kill("SIGTERM");
    assert.equal(await run.exitCode(), 0);
    await assert.rejects(Deno.lstat(socket), Deno.errors.NotFound);
  }
});

Deno.test("--http-engine=deno serves HTTP through Deno.serve", async () => {
  await using repository = await makeRepository();
  await using run = runServer(`--model-repository=${repository.path}`, "--http-engine=deno");
  assert.deepEqual(await infer(await run.address("HTTP")), [1, 2.5]);
  run.kill("SIGTERM");
  assert.equal(await run.exitCode(), 0);
});

Deno.test("two servers share a port with --reuse-http-port", async () => {
  await using repository = await makeRepository();
  const flags = [`--model-repository=${repository.path}`, "--reuse-http-port=true"];
  await using first = runServer(...flags);
  const address = await first.address("HTTP");
  await using second = runServer(...flags, `--http-port=${new URL(address).port}`);
  assert.equal(await second.address("HTTP"), address);
});

Deno.test("each listener answers both protocols, unless one service has its own address", async () => {
  await using repository = await makeRepository();
  const flag = `--model-repository=${repository.path}`;
  {
    await using run = runServer(flag);
    assert.deepEqual(await infer(`http://${await run.address("gRPC")}`), [1, 2.5]);
  }
  await using run = runServer(flag, "--http-address=127.0.0.1", "--grpc-address=127.0.0.2");
  const response = await fetch(`http://${await run.address("gRPC")}/v2/health/live`);
  await response.body?.cancel();
  assert.equal(response.status, 404);
});

Deno.test("a second server takes the ports of the first at once", async () => {
  await using repository = await makeRepository();
  let port = "0";
  for (let start = 0; start < 3; start++) {
    await using run = runServer(`--model-repository=${repository.path}`, `--http-port=${port}`);
    const address = await run.address("HTTP");
    port = new URL(address).port;
    assert.deepEqual(await infer(address), [1, 2.5]);
    run.kill("SIGTERM");
    assert.equal(await run.exitCode(), 0);
  }
});
