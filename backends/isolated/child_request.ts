import type { ExecuteRequest, ExecuteResponse, ModelTrace } from "../backend.ts";
import { CallCancellation } from "../call_cancellation.ts";
import type { FramePort } from "../process/stub_link.ts";
import type { StubMemory } from "../process/stub_memory.ts";
import { FRAME, wireError } from "./isolated_wire.ts";
import { releaseOutcome, wireOutcome } from "./outcome_wire.ts";
import type { ReadRequest } from "./request_wire.ts";

/** Responses of one request that may be on their way (wire.md, SEND). */
const WINDOW = 64;

/** What requests of a process have in common. */
export interface ChildRequestParts {
  readonly port: FramePort;
  readonly memory: StubMemory;
  readonly now: () => number;
  /** Its final response was sent, or its outcome is one. */
  readonly closed: (number: number) => void;
}

/** A request in the process, until its final response. */
export class ChildRequest {
  readonly number: number;
  readonly request: ExecuteRequest;
  readonly #read: ReadRequest;
  readonly #parts: ChildRequestParts;
  readonly #signal = new CallCancellation();
  #outstandingCount = 0;
  #room: PromiseWithResolvers<void> | undefined;
  #isOver = false;

  constructor(read: ReadRequest, parts: ChildRequestParts) {
    this.number = read.number;
    this.#read = read;
    this.#parts = parts;
    if (read.slots.length > 0) parts.memory.peer!.hold();
    this.request = {
      ...read.fields,
      signal: this.#signal,
      ...(read.isTraced ? { trace: this.#createTrace() } : {}),
      send: (response, isFinal) => this.#send(response, isFinal),
    };
  }

  /** CANCELLED. */
  cancel(): void {
    this.#signal.cancel();
    this.#openRoom();
  }

  /** CREDIT. */
  credit(count: number): void {
    this.#outstandingCount -= count;
    if (this.#outstandingCount < WINDOW) this.#openRoom();
  }

  /** Nothing more is sent; its inputs are not read any more. */
  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#openRoom();
    const { slots } = this.#read;
    if (slots.length > 0) {
      const { memory } = this.#parts;
      memory.giveBack(slots);
      memory.peer!.release();
    }
    this.#parts.closed(this.number);
  }

  #send(response: ExecuteResponse | undefined, isFinal: boolean): Promise<void> | undefined {
    if (this.#isOver) throw new TypeError("Cannot send: the final response was sent before");
    const { port, memory } = this.#parts;
    const writer = memory.writer();
    const body = {
      ...(response === undefined ? {} : { r: wireOutcome(response, writer) }),
      ...(response?.outputStartMs === undefined ? {} : { u: this.#ageUs(response.outputStartMs) }),
      ...(isFinal ? { l: true } : {}),
    };
    // The last frame takes the inputs along.
    if (isFinal) this.close();
    try {
      port.send(FRAME.send, this.number, body, writer.payload);
    } catch (reason) {
      writer.discard();
      port.send(FRAME.send, this.number, { ...body, r: { e: wireError(reason) } });
    } finally {
      releaseOutcome(response);
    }
    if (isFinal || ++this.#outstandingCount < WINDOW) return undefined;
    // A client that has gone takes nothing any more; the server lets it be thrown away.
    if (this.#signal.aborted) return undefined;
    return (this.#room ??= Promise.withResolvers()).promise;
  }

  #ageUs(atMs: number): number {
    return Math.max(0, Math.round((this.#parts.now() - atMs) * 1000));
  }

  #openRoom(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }

  #createTrace(): ModelTrace {
    const { port } = this.#parts;
    return {
      context: this.#read.traceContext,
      mark: (activity, atMs) => {
        const ageUs = atMs === undefined ? 0 : this.#ageUs(atMs);
        port.send(FRAME.mark, this.number, { a: activity, u: ageUs });
      },
    };
  }
}
