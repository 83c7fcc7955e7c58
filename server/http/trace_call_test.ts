import assert from "node:assert/strict";
import type { RequestTrace } from "../core/inference_api.ts";
import { DEFAULT_HTTP_OPTIONS } from "./http_options.ts";
import { createHttpHandler } from "./http_server.ts";
import { InMemoryFacade, memoryModel, memoryRequest } from "./in_memory_facade.ts";

class Notes implements RequestTrace {
  readonly names: string[] = [];
  endCount = 0;
  mark(activity: string): void {
    this.names.push(activity);
  }
  end(): void {
    this.endCount++;
  }
}

const BODY = '{"inputs":[{"name":"IN0","datatype":"FP32","shape":[1],"data":[1.5]}]}';

async function send(target: string, body: string): Promise<{ notes: Notes; status: number }> {
  const api = new InMemoryFacade([memoryModel("echo")]);
  const notes = new Notes();
  api.trace = notes;
  using handler = createHttpHandler(api, DEFAULT_HTTP_OPTIONS);
  assert.equal(handler.arrivalTime!(), 1);
  const response = await handler.handle(memoryRequest("POST", target, { body }));
  assert.equal(notes.endCount, 0);
  if (response.body !== undefined && Symbol.asyncIterator in response.body) {
    for await (const _ of response.body) continue;
  }
  response.onSent!();
  return { notes, status: response.status };
}

const ALL = ["HTTP_RECV_START", "HTTP_RECV_END", "HTTP_SEND_START", "HTTP_SEND_END"];

Deno.test("an inference request is traced from its arrival until its answer was sent", async () => {
  for (
    const [path, body, status] of [
      ["infer", BODY, 200],
      ["infer", "{", 400],
      ["generate", '{"IN0":[1]}', 200],
      ["generate", '{"NO":[1]}', 400],
      ["generate_stream", '{"IN0":[1]}', 200],
    ] as const
  ) {
    const { notes, status: got } = await send(`/v2/models/echo/${path}`, body);
    assert.equal(got, status, path);
    assert.deepEqual(notes.names, ALL, path);
    assert.equal(notes.endCount, 1);
  }
});
