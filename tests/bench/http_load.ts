import type { LoadJob, Meter } from "./load_job.ts";

const CRLF_CRLF = [13, 10, 13, 10];
const textDecoder = new TextDecoder();

/** Keeps `job.concurrency` HTTP/1.1 connections busy, one request at a time on each. */
export function startHttpLoad(job: LoadJob, body: Uint8Array, meter: Meter): void {
  const method = job.way === "http-get" ? "GET" : "POST";
  const lines = [`${method} ${job.path} HTTP/1.1`, "host: bench"];
  if (method === "POST") lines.push(`content-length: ${body.length}`);
  for (const [name, value] of job.headers) lines.push(`${name}: ${value}`);
  const head = new TextEncoder().encode(lines.join("\r\n") + "\r\n\r\n");
  const request = new Uint8Array(head.length + body.length);
  request.set(head);
  request.set(body, head.length);
  for (let index = 0; index < job.concurrency; index++) {
    void keepBusy(job, request, meter).catch((reason) => meter.fail(String(reason)));
  }
}

async function keepBusy(job: LoadJob, request: Uint8Array, meter: Meter): Promise<void> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port: job.port });
  connection.setNoDelay(true);
  const buffer = new Uint8Array(2 * 1024 * 1024);
  while (!meter.isOver) {
    const sentAt = performance.now();
    await writeAll(connection, request);
    const status = await readAnswer(connection, buffer);
    if (status.startsWith("HTTP/1.1 200")) meter.record(sentAt);
    else meter.fail(status);
  }
}

/** Writes every byte; `conn.write` may take only a part. */
export async function writeAll(connection: Deno.Conn, bytes: Uint8Array): Promise<void> {
  let written = await connection.write(bytes);
  while (written < bytes.length) written += await connection.write(bytes.subarray(written));
}

/** Reads one answer with a content length; returns its status line, with the body when it is no success. */
async function readAnswer(connection: Deno.Conn, buffer: Uint8Array): Promise<string> {
  let length = 0;
  let end = -1;
  while (end < 0) {
    const count = await connection.read(buffer.subarray(length));
    if (count === null) throw new Error("the server closed the connection");
    const from = Math.max(0, length - 3);
    length += count;
    end = headEnd(buffer, from, length);
  }
  const head = textDecoder.decode(buffer.subarray(0, end));
  const match = /\ncontent-length: *(\d+)/i.exec(head);
  if (match === null) throw new Error(`no content length in ${head}`);
  let left = Number(match[1]) - (length - end);
  while (left > 0) {
    const count = await connection.read(buffer.subarray(0, Math.min(left, buffer.length)));
    if (count === null) throw new Error("the server closed the connection inside a body");
    left -= count;
  }
  const line = head.slice(0, head.indexOf("\r"));
  if (line.includes(" 200 ")) return line;
  return `${line} ${textDecoder.decode(buffer.subarray(end, Math.min(length, end + 200)))}`;
}

function headEnd(buffer: Uint8Array, from: number, length: number): number {
  for (
    let at = buffer.indexOf(13, from);
    at >= 0 && at + 4 <= length;
    at = buffer.indexOf(13, at + 1)
  ) {
    if (CRLF_CRLF.every((byte, index) => buffer[at + index] === byte)) return at + 4;
  }
  return -1;
}
