import { type ByteSink, FrameSender } from "./frame_sender.ts";
import type { StubMemory } from "./stub_memory.ts";
import { type FramePayload, FREE_KIND } from "./frame.ts";

/** The JSON of a frame that is made here. */
export type FrameBody = Record<string, unknown>;

/** Sends frames on one connection, with the slots that go back to the process. */
export interface FramePort {
  /** @throws RangeError when the frame is too large. Does nothing once the connection has ended. */
  send(kind: number, id: number, body?: FrameBody, payload?: FramePayload): void;
}

/** A port on a connection; `fail` is called when it takes nothing more. */
export function createFramePort(
  sink: ByteSink,
  memory: StubMemory,
  fail: (reason: unknown) => void,
): FramePort {
  let isOpen = true;
  const sender = new FrameSender(sink, (reason) => {
    isOpen = false;
    fail(reason);
  });
  return {
    send(kind, id, body, payload) {
      if (!isOpen) return;
      const free = memory.takeFree();
      try {
        let json = "";
        if (free !== undefined) json = JSON.stringify({ ...body, f: free });
        else if (body !== undefined) json = JSON.stringify(body);
        sender.send(kind, id, json, payload);
      } catch (reason) {
        // The next frame takes them along.
        if (free !== undefined) memory.giveBack(free);
        throw reason;
      }
    },
  };
}

/** Sends a frame that only gives slots back. */
export function sendFree(port: FramePort): void {
  port.send(FREE_KIND, 0);
}
