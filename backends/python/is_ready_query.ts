import type { FramePort } from "../process/stub_link.ts";
import type { Frame } from "../process/frame.ts";
import { FRAME } from "./stub_wire.ts";

const TIMEOUT_MS = 5000;

/** What a model says of its readiness. */
export interface Readiness {
  readonly isReady: boolean;
  readonly reason?: string;
}

/**
 * Asks a process for the model's own word on its readiness. One question is on its way at a time, also when whoever
 * asked has given up: queries that come in the meantime share its answer.
 */
export class IsReadyQuery {
  readonly #port: FramePort;
  readonly #instanceName: string;
  readonly #timeoutMs: number;
  readonly #waiting = new Set<(readiness: Readiness) => void>();
  #number = 0;
  #isAsked = false;
  #shared: Promise<Readiness> | undefined;

  constructor(port: FramePort, instanceName: string, timeoutMs = TIMEOUT_MS) {
    this.#port = port;
    this.#instanceName = instanceName;
    this.#timeoutMs = timeoutMs;
  }

  /** Never rejects; settles within `timeoutMs`, 5 s when none is given. */
  ask(): Promise<Readiness> {
    return this.#shared ??= this.#wait();
  }

  #wait(): Promise<Readiness> {
    const { promise, resolve } = Promise.withResolvers<Readiness>();
    const finish = (readiness: Readiness) => {
      clearTimeout(timer);
      this.#waiting.delete(finish);
      this.#shared = undefined;
      resolve(readiness);
    };
    const reason = "Timed out waiting for user-defined is_ready() response";
    const timer = setTimeout(() => finish({ isReady: false, reason }), this.#timeoutMs);
    this.#waiting.add(finish);
    if (!this.#isAsked) {
      this.#isAsked = true;
      this.#port.send(FRAME.isReady, ++this.#number);
    }
    return promise;
  }

  /** READY. */
  answered({ id, json }: Frame): void {
    if (id !== this.#number) return;
    if (json.v === true) return this.#settle({ isReady: true });
    const reason = typeof json.error === "string"
      ? json.error
      : `Model '${this.#instanceName}' is not ready (user-defined check failed).`;
    this.#settle({ isReady: false, reason });
  }

  /** The process is gone. */
  close(reason: string): void {
    this.#settle({ isReady: false, reason });
  }

  #settle(readiness: Readiness): void {
    this.#isAsked = false;
    for (const finish of [...this.#waiting]) finish(readiness);
  }
}
