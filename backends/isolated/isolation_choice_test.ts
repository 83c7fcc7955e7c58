import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { Backend, BackendContext, BackendModel, ModelSource } from "../backend.ts";
import { fakeHost } from "../model_host_fixture.ts";
import { IsolationChoice } from "./isolation_choice.ts";

const MODEL = {} as BackendModel;
const HERE: Backend = {
  name: "b",
  preference: { kind: "KIND_CPU", count: 3 },
  autoComplete: () => Promise.resolve(),
  openModel: () => Promise.resolve(MODEL),
  [Symbol.asyncDispose]: () => Promise.resolve(),
};

function open(settings: Record<string, string>, refusal?: string) {
  const warnings: string[] = [];
  const context: BackendContext = {
    settings: new Map(Object.entries(settings)),
    log: { info() {}, warning: (text) => void warnings.push(text), error() {}, verbose() {} },
    now: () => 0,
    countBatchRetry() {},
    host: fakeHost(),
  };
  const options = { name: "b", directory: "", openHere: () => Promise.resolve(HERE) };
  const opened = IsolationChoice.open(
    context,
    refusal === undefined ? options : { ...options, refusal },
  );
  return { opened, warnings };
}

function source(isolation?: string): ModelSource {
  const parameters = isolation === undefined ? {} : { isolation: { stringValue: isolation } };
  const config = create(ModelConfigSchema, { name: "m", parameters });
  return { name: "m", version: 1, modelDirectory: "/m", versionDirectory: "/m/1", config };
}

Deno.test("without isolation a backend is as it is", async () => {
  const backend = await open({}).opened;
  assert.deepEqual([backend.name, backend.preference, backend.kinds], [
    "b",
    HERE.preference,
    undefined,
  ]);
  assert.equal(await backend.openModel(source()), MODEL);
  assert.equal(await backend.openModel(source("none")), MODEL);
});

Deno.test("values nobody knows are refused", async () => {
  await assert.rejects(open({ isolation: "vm" }).opened, /--backend-config 'isolation' must be/);
  const backend = await open({}).opened;
  await assert.rejects(
    backend.openModel(source("Process")),
    /parameter 'isolation' of model 'm' must be 'process' or 'none', got 'Process'/,
  );
});

Deno.test("a backend that cannot be isolated says so, and serves what did not ask for it itself", async () => {
  const { opened, warnings } = open({ isolation: "process" }, "it calls back");
  const backend = await opened;
  assert.deepEqual(warnings, ["backend 'b' does not follow isolation=process: it calls back"]);
  assert.equal(await backend.openModel(source()), MODEL);
  await assert.rejects(
    backend.openModel(source("process")),
    /cannot have isolation=process: it calls/,
  );
});
