import type { ExecuteReport, ExecuteRequest, ModelInstance } from "../backend.ts";
import type { Frame } from "../process/frame.ts";
import type { FramePort } from "../process/stub_link.ts";
import { StubMemory } from "../process/stub_memory.ts";
import { ChildExecutions } from "./child_executions.ts";
import { Executions } from "./executions.ts";
import { FRAME } from "./isolated_wire.ts";

const LIMITS = { initialByteSize: 4096, growthByteSize: 4096, maxByteSize: 8192 };

/** Both ends of a process with nothing between them but what frames can hold. */
export interface Loopback {
  readonly executions: Executions;
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport>;
  /** Kinds of the frames to the process, and from it. */
  readonly toChild: number[];
  readonly fromChild: number[];
  /** Nothing that is sent arrives any more. */
  cut(): void;
}

/** Runs `run` as the instance of a process. */
export function loopback(run: ModelInstance["execute"]): Loopback {
  let nowMs = 0;
  const now = () => nowMs += 0.5;
  let isCut = false;
  const toChild: number[] = [];
  const fromChild: number[] = [];
  const port = (kinds: number[], take: (frame: Frame) => void): FramePort => ({
    send(kind, id, body = {}, payload) {
      if (isCut) return;
      kinds.push(kind);
      const bytes = payload?.parts.flatMap((part) => [...part]) ?? [];
      const json = JSON.parse(JSON.stringify(body));
      queueMicrotask(() => take({ kind, id, json, payload: Uint8Array.from(bytes) }));
    },
  });
  const toServer = port(fromChild, (frame) => {
    if (frame.kind === FRAME.executed) executions.executed(frame);
    else if (frame.kind === FRAME.send) executions.sent(frame);
    else if (frame.kind === FRAME.mark) executions.marked(frame);
  });
  const toProcess = port(toChild, (frame) => {
    if (frame.kind === FRAME.execute) child.execute(frame);
    else if (frame.kind === FRAME.cancelled) child.cancelled(frame);
    else if (frame.kind === FRAME.credit) child.credit(frame);
  });
  const instance: ModelInstance = {
    placement: { name: "m_0", kind: "KIND_CPU", deviceId: 0 },
    execute: run,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const memory = new StubMemory(LIMITS);
  // Everything travels in the frames.
  memory.agree({ pid: 0, isShared: false });
  const child = new ChildExecutions(instance, { port: toServer, memory, now });
  const executions = new Executions({ port: toProcess, memory, now, onIdle: () => {} });
  return {
    executions,
    execute: (requests) => executions.execute(requests) as Promise<ExecuteReport>,
    toChild,
    fromChild,
    cut: () => isCut = true,
  };
}
