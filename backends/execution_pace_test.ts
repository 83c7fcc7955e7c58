import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../proto/gen/model_config_pb.ts";
import { FakeClock } from "../server/core/fake_clock.ts";
import { ExecutionPace } from "./execution_pace.ts";
import { executeRequest } from "./execute_request_fixture.ts";

Deno.test("ExecutionPace.delay() makes later instances of a group slower", async () => {
  const parameters = (values: Record<string, string>) =>
    Object.fromEntries(
      Object.entries(values).map(([key, stringValue]) => [key, { stringValue }]),
    );
  const config = create(ModelConfigSchema, {
    parameters: parameters({ execute_delay_ms: "100", instance_wise_delay_multiplier: "4" }),
  });
  const clock = new FakeClock();
  const pace = new ExecutionPace(config, clock);
  const request = executeRequest({ inputs: [], outputs: [] });
  for (const [name, delayMs] of [["m_0_0", 100], ["m_0_1", 400], ["m_1_2", 800], ["m", 100]]) {
    let isOver = false;
    const placement = { name: String(name), kind: "KIND_CPU" as const, deviceId: 0 };
    void pace.delay(placement, [request])!.then(() => isOver = true);
    await clock.advance(Number(delayMs) - 1);
    assert.equal(isOver, false, `${name} takes ${delayMs} ms`);
    await clock.advance(1);
    assert.equal(isOver, true, `${name} takes ${delayMs} ms`);
  }
});
