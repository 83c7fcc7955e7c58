import assert from "node:assert/strict";
import { waitUntil } from "../delay.ts";
import { makeRepository } from "./server_run.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;

Deno.test("the server serves although nobody reads what it prints", async () => {
  await using repository = await makeRepository();
  const logFile = `${repository.path}.log`;
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-A",
      `${PROJECT}mod.ts`,
      `--model-repository=${repository.path}`,
      `--log-file=${logFile}`,
      ...["http", "grpc", "metrics"].map((name) => `--${name}-port=0`),
    ],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  await Promise.all([child.stdout.cancel(), child.stderr.cancel()]);
  let port = "";
  const started = await waitUntil(() => {
    try {
      port = /Started HTTPService at [^:]+:(\d+)/.exec(Deno.readTextFileSync(logFile))?.[1] ?? "";
    } catch {
      // The file is not there yet.
    }
    return port !== "";
  }, 20_000);
  assert.ok(started);
  const response = await fetch(`http://localhost:${port}/v2/health/ready`);
  await response.body?.cancel();
  assert.equal(response.status, 200);
  child.kill("SIGTERM");
  assert.equal((await child.status).code, 0);
  await Deno.remove(logFile);
});
