import { create, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import type { RequestTrace } from "../core/inference_api.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { createMemoryServer, statusOf } from "./memory_server.ts";

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

function message(modelName = "echo"): Uint8Array {
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, {
      modelName,
      inputs: [{ name: "X", datatype: "INT8", shape: [4n] }],
      rawInputContents: [new Uint8Array(4)],
    }),
  );
}

function setUp() {
  const server = createMemoryServer(new FakeClock());
  const notes = new Notes();
  server.api.trace = notes;
  return { ...server, notes };
}

const READ = ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"];
const SEND = ["GRPC_SEND_START", "GRPC_SEND_END"];

Deno.test("ModelInfer is traced from its message until its answer was sent", async () => {
  const { call, notes } = setUp();
  assert.equal(statusOf(await call("ModelInfer", message()))[0], "0");
  assert.deepEqual(notes.names, [...READ, ...SEND]);
  assert.equal(notes.endCount, 1);
});

Deno.test("ModelInfer that fails ends its trace", async () => {
  const { call, notes } = setUp();
  assert.notEqual(statusOf(await call("ModelInfer", message("nobody")))[0], "0");
  assert.deepEqual(notes.names.slice(0, 3), [...READ, "GRPC_SEND_START"]);
  assert.equal(notes.endCount, 1);
});

Deno.test("ModelInfer whose client goes away ends its trace without an answer", async () => {
  const { open, api, clock, notes } = setUp();
  api.hold = true;
  const stream = open("ModelInfer");
  stream.message(message());
  stream.end();
  stream.onReset();
  assert.equal(notes.endCount, 0);
  api.held[0]!.answer();
  await clock.settle();
  assert.deepEqual(notes.names, READ);
  assert.equal(notes.endCount, 1);
});

Deno.test("each request of a stream has a trace of its own, also when the stream is cut", async () => {
  const { open, api, clock, notes } = setUp();
  const stream = open("ModelStreamInfer");
  stream.message(message());
  await clock.settle();
  assert.deepEqual(notes.names, [...READ, ...SEND]);
  api.hold = true;
  stream.message(message());
  stream.onReset();
  api.held[0]!.answer();
  await clock.settle();
  assert.deepEqual(notes.names.slice(4), READ);
  assert.equal(notes.endCount, 2);
});
