import assert from "node:assert/strict";
import type {
  CallMessage,
  CallOptions,
  ExecuteOutcome,
  ExecuteResponse,
} from "../../backends/backend.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { CustomMetrics } from "./custom_metrics.ts";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";
import { createModelHost } from "./model_host.ts";

export const DECOUPLED = { modelTransactionPolicy: { decoupled: true } };
export const STREAMED: ExecuteOutcome = { streamed: true };

/** Releases of responses, by value, since the last `setUpHost`. */
export let released: number[] = [];

/** A response of one value. */
export function response(value: number): ExecuteResponse {
  const data = new Uint8Array(Float32Array.of(value).buffer);
  const outputs = [{ name: "OUT", datatype: "FP32" as const, shape: [1, 1], data }];
  return { outputs, release: () => released.push(value) };
}

/** What came, as text; `!` behind what is final. Gives the response back. */
export function textOf(message: CallMessage): string {
  const end = message.isFinal ? "!" : "";
  if ("error" in message) return `${message.error.code} ${message.error.message}${end}`;
  if (!("response" in message)) return end;
  const { data } = message.response.outputs[0]!;
  message.release();
  return `${new Float32Array(data.slice().buffer)[0]}${end}`;
}

/** An engine with a host, and how to call models through it. */
export async function setUpHost(
  models: Readonly<Record<string, FakeModel>>,
  ...more: ConstructorParameters<typeof EngineFixture> extends [unknown, ...infer Rest] ? Rest : []
) {
  released = [];
  const fixture = new EngineFixture(models, ...more);
  const host = createModelHost(() => fixture.engine, new CustomMetrics());
  assert.equal((await fixture.start()).ok, true);
  /** Starts a call and notes what comes of it. */
  const call = (
    model: string,
    { decoupled = false, hold, trace, signal, ...change }:
      & Partial<InferRequest>
      & Partial<CallOptions>
      & { hold?: () => Promise<void> | undefined } = {},
  ) => {
    const state: { log: string[]; isOver: boolean } = { log: [], isOver: false };
    host.infer(inferRequest(model, change), (message) => {
      state.log.push(textOf(message));
      return hold?.();
    }, { decoupled, trace, signal }).then(() => state.isOver = true);
    return state;
  };
  const inflight = () => fixture.engine.metrics().versions.map(({ inflight }) => inflight);
  const { engine, clock, executions } = fixture;
  return { fixture, engine, clock, executions, host, call, inflight };
}

/** A model that calls another one in each request, and answers with what that answers + 100. */
export function callerOf(
  callee: string,
  host: () => ReturnType<typeof createModelHost>,
): FakeModel {
  return {
    config: DECOUPLED,
    outcome: (request) => {
      void host().infer(inferRequest(callee), (message) => {
        if ("response" in message) {
          const value = new Float32Array(message.response.outputs[0]!.data.slice().buffer)[0]!;
          message.release();
          request.send(response(value + 100), message.isFinal);
        } else if ("error" in message) request.send({ error: message.error }, true);
        return undefined;
      }, { decoupled: true });
      return STREAMED;
    },
  };
}
