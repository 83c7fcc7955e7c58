import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  ModelMetadataRequestSchema,
  ModelMetadataResponseSchema,
  ModelReadyRequestSchema,
  ModelReadyResponseSchema,
  RepositoryIndexRequestSchema,
  RepositoryIndexResponseSchema,
  RepositoryModelLoadRequestSchema,
  RepositoryModelUnloadRequestSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { createMemoryServer, statusOf } from "./memory_server.ts";

Deno.test("model calls answer from the facade", async () => {
  const { call } = createMemoryServer(new FakeClock());
  const request = toBinary(
    ModelMetadataRequestSchema,
    create(ModelMetadataRequestSchema, { name: "echo" }),
  );
  const metadata = fromBinary(
    ModelMetadataResponseSchema,
    (await call("ModelMetadata", request)).sent[0]!.subarray(5),
  );
  assert.deepEqual(metadata.inputs[0]!.shape, [-1n, 4n]);
  const unknown = toBinary(
    ModelReadyRequestSchema,
    create(ModelReadyRequestSchema, { name: "x" }),
  );
  const ready = await call("ModelReady", unknown);
  assert.equal(ready.trailers?.["grpc-status"], "0");
  assert.deepEqual([...ready.sent[0]!.subarray(5)], [], "false");
  const nameless = await call("ModelMetadata", unknown);
  assert.equal(nameless.trailers?.["grpc-status"], "5");
});

Deno.test("ModelReady waits for what the model itself says", async () => {
  const { call, api } = createMemoryServer(new FakeClock());
  const request = toBinary(
    ModelReadyRequestSchema,
    create(ModelReadyRequestSchema, { name: "echo" }),
  );
  for (const isReady of [true, false]) {
    api.modelReady = Promise.resolve(isReady);
    const answer = await call("ModelReady", request);
    const { ready } = fromBinary(ModelReadyResponseSchema, answer.sent[0]!.subarray(5));
    assert.equal(ready, isReady);
  }
});

Deno.test("RepositoryIndex fills unknown members with empty strings", async () => {
  const { call } = createMemoryServer(new FakeClock());
  const encode = (init: MessageInitShape<typeof RepositoryIndexRequestSchema>) =>
    toBinary(RepositoryIndexRequestSchema, create(RepositoryIndexRequestSchema, init));
  const stream = await call("RepositoryIndex", encode({}));
  const { models } = fromBinary(RepositoryIndexResponseSchema, stream.sent[0]!.subarray(5));
  assert.deepEqual(models.map((entry) => [entry.name, entry.version, entry.state, entry.reason]), [
    ["echo", "1", "READY", ""],
    ["other", "", "", ""],
  ]);
  const named = await call("RepositoryIndex", encode({ repositoryName: "main" }));
  assert.deepEqual(statusOf(named), ["12", "'repository_name' specification is not supported"]);
});

Deno.test("RepositoryModelLoad checks its parameters", async () => {
  const { api, call } = createMemoryServer(new FakeClock());
  type Load = MessageInitShape<typeof RepositoryModelLoadRequestSchema>;
  const load = async (parameters: NonNullable<Load["parameters"]>) => {
    const message = { modelName: "m", parameters } as Load;
    return statusOf(
      await call(
        "RepositoryModelLoad",
        toBinary(
          RepositoryModelLoadRequestSchema,
          create(RepositoryModelLoadRequestSchema, message),
        ),
      ),
    );
  };
  const text = { parameterChoice: { case: "stringParam", value: "{}" } } as const;
  const bytes = { parameterChoice: { case: "bytesParam", value: new Uint8Array([1]) } } as const;
  assert.deepEqual(await load({ config: text, "file:1/a": bytes }), ["0", ""]);
  assert.deepEqual({ ...api.loaded[0]![1] }, { config: "{}", "file:1/a": new Uint8Array([1]) });
  assert.deepEqual(await load({ config: bytes }), [
    "3",
    "invalid value type for load parameter 'config', expected string_param.",
  ]);
  assert.deepEqual(await load({ "file:1/a": text }), [
    "3",
    "invalid value type for load parameter 'file:1/a', expected bytes_param.",
  ]);
  assert.deepEqual(await load({ verbose: text }), ["3", "unrecognized load parameter 'verbose'."]);
});

Deno.test("RepositoryModelUnload takes unload_dependents only as bool_param", async () => {
  const { api, call } = createMemoryServer(new FakeClock());
  type Unload = MessageInitShape<typeof RepositoryModelUnloadRequestSchema>;
  const unload = async (parameters: NonNullable<Unload["parameters"]>) => {
    const message = create(
      RepositoryModelUnloadRequestSchema,
      { modelName: "m", parameters } as Unload,
    );
    return statusOf(
      await call(
        "RepositoryModelUnload",
        toBinary(RepositoryModelUnloadRequestSchema, message),
      ),
    );
  };
  const yes = { parameterChoice: { case: "boolParam", value: true } } as const;
  const text = { parameterChoice: { case: "stringParam", value: "true" } } as const;
  assert.deepEqual(await unload({ unload_dependents: yes, force: text }), ["0", ""]);
  assert.deepEqual(api.unloaded, [["m", true]]);
  assert.deepEqual(await unload({ unload_dependents: text }), [
    "3",
    "invalid value type for 'unload_dependents' parameter, expected bool_param.",
  ]);
});
