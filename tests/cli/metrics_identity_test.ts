import assert from "node:assert/strict";
import { createServer } from "../../mod.ts";
import { makeRepository } from "./server_run.ts";

const SLOW = `
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "execute_delay_ms" value { string_value: "3" } }
`;
const CLIENTS = 12;
const REQUESTS_PER_CLIENT = 40;

/** Value of a counter, all its samples added up. */
function sumOf(text: string, family: string): number {
  const lines = text.split("\n").filter((line) => line.startsWith(`${family}{`));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

/** The three sides of the identity, as one scrape shows them. */
function sides(text: string): { received: number; answered: number; inflight: number } {
  return {
    received: sumOf(text, "nereid_inference_request_received"),
    answered: sumOf(text, "nv_inference_request_success") +
      sumOf(text, "nv_inference_request_failure"),
    inflight: sumOf(text, "nereid_inference_inflight_request_count"),
  };
}

async function askAndOftenGoAway(url: string): Promise<void> {
  for (let round = 0; round < REQUESTS_PER_CLIENT; round++) {
    // Every third client does not wait for its answer, every fourth request is refused.
    const signal = round % 3 === 0 ? AbortSignal.timeout(1 + round % 5) : null;
    const shape = round % 4 === 0 ? [3] : [2];
    const inputs = [{ name: "INPUT0", datatype: "FP32", shape, data: [1, 2] }];
    await fetch(url, { method: "POST", body: JSON.stringify({ inputs }), signal })
      .then((response) => response.body?.cancel())
      .catch(() => {});
  }
}

Deno.test("at every scrape the requests received are those answered and those in flight", async () => {
  await using repository = await makeRepository({ slow: SLOW });
  await using server = createServer({
    modelRepository: repository.path,
    http: { address: "127.0.0.1", port: 0 },
    metrics: { address: "127.0.0.1", port: 0 },
  });
  const { addresses } = await server.start();
  const url = `http://${addresses["http"]}/v2/models/slow/infer`;
  const scrape = async () => await (await fetch(`http://${addresses["metrics"]}/metrics`)).text();
  let isLoading = true;
  const load = Promise.all(Array.from({ length: CLIENTS }, () => askAndOftenGoAway(url)))
    .finally(() => isLoading = false);
  let busyScrapes = 0;
  while (isLoading) {
    const { received, answered, inflight } = sides(await scrape());
    assert.equal(received, answered + inflight);
    if (inflight > 0) busyScrapes++;
  }
  await load;
  assert.ok(busyScrapes > 5, `${busyScrapes} scrapes saw requests in flight`);
  assert.equal(await server.stop(), true);
});
