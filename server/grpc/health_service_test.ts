import { fromBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  ServerLiveResponseSchema,
  ServerReadyResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { HealthCheckResponseSchema } from "../../proto/gen/health_pb.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { createMemoryServer, statusOf } from "./memory_server.ts";
import type { MemoryStream } from "./memory_stream.ts";

Deno.test("health calls follow the state of the server", async () => {
  const { api, call } = createMemoryServer(new FakeClock());
  const empty = new Uint8Array();
  const read = (stream: MemoryStream) => stream.sent[0]!.subarray(5);
  const check = "/grpc.health.v1.Health/Check";
  assert.equal(
    fromBinary(ServerLiveResponseSchema, read(await call("ServerLive", empty))).live,
    true,
  );
  assert.equal(fromBinary(HealthCheckResponseSchema, read(await call(check, empty))).status, 1);
  api.ready = false;
  const ready = await call("ServerReady", empty);
  assert.equal(fromBinary(ServerReadyResponseSchema, read(ready)).ready, false);
  assert.equal(fromBinary(HealthCheckResponseSchema, read(await call(check, empty))).status, 2);
  api.exiting = true;
  for (const method of ["ServerLive", "ServerReady", check]) {
    assert.deepEqual(statusOf(await call(method, empty)), ["14", "Server exiting"]);
  }
});

Deno.test("Watch tells the state at once, its changes, and ends at shutdown", async () => {
  const { api, clock, open } = createMemoryServer(new FakeClock(), { maxWatchers: 1 });
  const stream = open("/grpc.health.v1.Health/Watch");
  stream.message(new Uint8Array());
  stream.end();
  const statuses = () =>
    stream.sent.map((message) => fromBinary(HealthCheckResponseSchema, message.subarray(5)).status);
  assert.deepEqual(statuses(), [1]);
  const second = open("/grpc.health.v1.Health/Watch");
  second.message(new Uint8Array());
  assert.equal(second.trailers?.["grpc-status"], "8");
  api.ready = false;
  await clock.advance(1000);
  api.ready = true;
  await clock.advance(1000);
  assert.deepEqual(statuses(), [1, 2, 1]);
  api.exiting = true;
  await clock.advance(1000);
  assert.deepEqual(statusOf(stream), ["14", "Server exiting"]);
  api.exiting = false;
  const third = open("/grpc.health.v1.Health/Watch");
  third.message(new Uint8Array());
  assert.equal(third.trailers, undefined);
  third.disconnect();
  await Promise.resolve();
  assert.equal(clock.timerCount, 0);
});
