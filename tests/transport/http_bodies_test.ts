import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { deflateSync, gzipSync, unzipSync } from "node:zlib";
import { DEFAULT_HTTP_OPTIONS } from "../../server/http/http_options.ts";
import { createHttpHandler } from "../../server/http/http_server.ts";
import { InMemoryFacade, memoryModel } from "../../server/http/in_memory_facade.ts";
import { openTestListener, writeFully } from "./socket_peer.ts";

const CLIENT_COUNT = 8;
/** Requests of each client; more by `NEREID_BODY_REQUESTS` for a hunt. */
const REQUEST_COUNT = Number(Deno.env.get("NEREID_BODY_REQUESTS") ?? "25");
const SIZES = [0, 1, 700, 3_000, 20_000, 70_000, 300_000, 1_200_000, 8_000_000];

/** Numbers that look random and are the same in every run. */
class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  roll(count: number): number {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return (this.#state >>> 8) % count;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.roll(choices.length)]!;
  }
}

interface Call {
  readonly bytes: Uint8Array;
  /** What the one output must hold; undefined = the request is refused. */
  readonly expected: Uint8Array | undefined;
}

/** Bytes in which no place looks like another. */
function makePattern(byteSize: number): Uint8Array {
  const pattern = new Uint8Array(byteSize);
  for (let at = 0; at < byteSize; at++) pattern[at] = at * 7 + (at >> 9) + (at >> 17);
  return pattern;
}

const PATTERN = makePattern(8_500_000);

function tensorBytes(dice: Dice, byteSize: number): Uint8Array {
  const start = dice.roll(PATTERN.length - byteSize);
  return PATTERN.subarray(start, start + byteSize);
}

/** One request in any of the forms: tensor in JSON or behind it, long JSON, refused JSON; plain or compressed. */
function makeCall(dice: Dice, client: number): Call {
  const form = dice.roll(10);
  const isJson = form < 4;
  const data = tensorBytes(dice, Math.min(dice.pick(SIZES), isJson ? 400_000 : Infinity));
  const isRefused = form === 0;
  const input = {
    ...(isRefused ? {} : { name: "IN0" }),
    datatype: "UINT8",
    shape: [data.length],
    ...(isJson ? { data: [...data] } : { parameters: { binary_data_size: data.length } }),
  };
  const parameters = { "binary_data_output": dice.roll(3) > 0 };
  const padding = dice.roll(12) === 0 ? " ".repeat(1_100_000) : "";
  const json = JSON.stringify({ id: `client ${client}`, inputs: [input], parameters }) + padding;
  const body = Buffer.concat([Buffer.from(json), isJson ? Buffer.alloc(0) : data]);
  const coding = dice.pick(["", "", "gzip", "deflate"]);
  const sent = coding === "" ? body : (coding === "gzip" ? gzipSync : deflateSync)(body, {
    level: 1,
  });
  const fields = [
    "POST /v2/models/echo/infer HTTP/1.1",
    "Host: h",
    `Content-Length: ${sent.length}`,
    `Inference-Header-Content-Length: ${json.length}`,
  ];
  if (coding !== "") fields.push(`Content-Encoding: ${coding}`);
  const accepted = dice.pick(["", "", "gzip", "deflate"]);
  if (accepted !== "") fields.push(`Accept-Encoding: ${accepted}`);
  const head = Buffer.from(fields.join("\r\n") + "\r\n\r\n");
  return { bytes: Buffer.concat([head, sent]), expected: isRefused ? undefined : data };
}

interface Answer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Buffer;
}

async function readAnswer(connection: Deno.Conn): Promise<Answer> {
  let bytes = Buffer.alloc(0);
  const chunk = new Uint8Array(1 << 20);
  let headEnd = -1;
  const parts: Buffer[] = [];
  let missing = Infinity;
  const headers = new Map<string, string>();
  while (missing > 0) {
    const count = await connection.read(chunk);
    if (count === null) throw new Error("connection ended inside an answer");
    const part = Buffer.from(chunk.slice(0, count));
    if (headEnd >= 0) {
      parts.push(part);
      missing -= count;
      continue;
    }
    bytes = Buffer.concat([bytes, part]);
    headEnd = bytes.indexOf("\r\n\r\n");
    if (headEnd < 0) continue;
    for (const line of bytes.toString("latin1", 0, headEnd).split("\r\n").slice(1)) {
      const colon = line.indexOf(":");
      headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
    }
    parts.push(bytes.subarray(headEnd + 4));
    missing = Number(headers.get("content-length")) - parts[0]!.length;
  }
  const status = Number(bytes.toString("latin1", 9, 12));
  return { status, headers, body: Buffer.concat(parts) };
}

/** Compares every byte of an answer with what it must be. */
function checkAnswer({ status, headers, body }: Answer, expected: Uint8Array | undefined): void {
  const plain = headers.has("content-encoding") ? Buffer.from(unzipSync(body)) : body;
  if (expected === undefined) {
    assert.equal(status, 400);
    assert.match(plain.toString(), /Unable to parse 'name'/);
    return;
  }
  assert.equal(status, 200, plain.toString("latin1", 0, 300));
  const headerLength = Number(headers.get("inference-header-content-length") ?? plain.length);
  const [output] = JSON.parse(plain.toString("utf8", 0, headerLength)).outputs;
  const data = headerLength === plain.length && output.data !== undefined
    ? Uint8Array.from(output.data)
    : plain.subarray(headerLength);
  assert.ok(Buffer.from(data).equals(expected), `${data.length} bytes differ`);
}

async function runClient(port: number, client: number): Promise<void> {
  const dice = new Dice(client * 7_919 + 17);
  const connect = () => Deno.connect({ hostname: "127.0.0.1", port });
  let connection = await connect();
  for (let index = 0; index < REQUEST_COUNT; index++) {
    const { bytes, expected } = makeCall(dice, client);
    const fate = dice.roll(8);
    if (fate < 2) {
      // Gone in the middle of the request, or while it is worked on.
      const byteSize = fate === 0 ? dice.roll(bytes.length) : bytes.length;
      await writeFully(connection, bytes.subarray(0, byteSize)).catch(() => {});
      if (dice.roll(2) === 0) await new Promise((resolve) => setTimeout(resolve, dice.roll(20)));
      connection.close();
      connection = await connect();
      continue;
    }
    const answer = readAnswer(connection);
    await Promise.all([writeFully(connection, bytes), answer]);
    checkAnswer(await answer, expected);
  }
  connection.close();
}

Deno.test("bodies of all forms and sizes come back byte for byte while others abort", async () => {
  const api = new InMemoryFacade([memoryModel("echo")]);
  const delays = new Dice(5);
  const echo = api.infer.bind(api);
  api.infer = async (request, options) => {
    const delayMs = delays.roll(4);
    if (delayMs > 1) await new Promise((resolve) => setTimeout(resolve, delayMs));
    api.requests.length = 0;
    return await echo(request, options);
  };
  using http = createHttpHandler(api, DEFAULT_HTTP_OPTIONS);
  await using test = await openTestListener({ http });
  const clients = Array.from(
    { length: CLIENT_COUNT },
    (_, client) => runClient(test.listener.port, client),
  );
  await Promise.all(clients);
  assert.deepEqual(test.faults, []);
});
