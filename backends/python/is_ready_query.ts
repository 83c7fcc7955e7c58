import type { FramePort } from "./stub_link.ts";
import { FRAME, type Frame } from "./stub_wire.ts";

const TIMEOUT_MS = 5000;

/** What a model says of its readiness. */
export interface Readiness {
  readonly isReady: boolean;
  readonly reason?: string;
}

/** Asks a process for the model's own word on its readiness; queries at the same time share one answer. */
export class IsReadyQuery {
  readonly #port: FramePort;
  readonly #instanceName: string;
  #number = 0;
  #asking: Promise<Readiness> | undefined;
  #answer: ((readiness: Readiness) => void) | undefined;

  constructor(port: FramePort, instanceName: string) {
    this.#port = port;
    this.#instanceName = instanceName;
  }

  /** Never rejects; settles within 5 s. */
  ask(): Promise<Readiness> {
    return this.#asking ??= new Promise((resolve) => {
      const reason = "Timed out waiting for user-defined is_ready() response";
      const timer = setTimeout(() => this.#settle({ isReady: false, reason }), TIMEOUT_MS);
      this.#answer = (readiness) => {
        clearTimeout(timer);
        resolve(readiness);
      };
      this.#port.send(FRAME.isReady, ++this.#number);
    });
  }

  /** READY. An answer that comes too late is not taken for that of a later query. */
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
    const answer = this.#answer;
    this.#answer = this.#asking = undefined;
    answer?.(readiness);
  }
}
