import { ServerError, type StatusCode } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type {
  BackendContext,
  BackendLog,
  ExecuteOutcome,
  ExecuteRequest,
  ExecuteResponse,
} from "../backend.ts";
import type { ArrivedFrame } from "./frame_link.ts";
import type { FrameReader } from "./frame_reader.ts";
import { HostCalls } from "./host_calls.ts";
import { HostQuestions } from "./host_questions.ts";
import { LiveSender } from "./live_sender.ts";
import { writeBatch } from "./batch_frame.ts";
import { toErrorText, WorkerLink } from "./worker_link.ts";
import { FRAME, type FromWorker, type HostQuestion, OUTCOME } from "./worker_protocol.ts";

/** What a session needs from outside. */
export interface SessionParts {
  readonly instanceName: string;
  readonly context: Pick<BackendContext, "log" | "host" | "now">;
  /** The Worker ended without being asked to. */
  readonly onEnd: (reason: string) => void;
}

interface RunningBatch {
  readonly first: number;
  readonly requests: readonly ExecuteRequest[];
  readonly settled: PromiseWithResolvers<ExecuteOutcome[]>;
}

/** One Worker from its start to its end: batches, streams and calls on both sides. */
export class WorkerSession {
  readonly link: WorkerLink;
  readonly #parts: SessionParts;
  readonly #calls: HostCalls;
  readonly #questions: HostQuestions;
  readonly #live = new Map<number, LiveSender>();
  #running: RunningBatch | undefined;
  #nextRequest = 1;

  constructor(worker: Worker, parts: SessionParts) {
    this.#parts = parts;
    this.link = new WorkerLink(worker, {
      onFrame: (frame) => this.#onFrame(frame),
      onMessage: (message) => this.#onMessage(message),
      onEnd: (reason) => this.#onEnd(reason),
    });
    const { host } = parts.context;
    this.#questions = new HostQuestions(host);
    this.#calls = new HostCalls({
      host,
      frames: this.link.frames,
      findRequest: (request) => this.#live.get(request)?.request,
    });
  }

  /** Requests of the batch that runs now. */
  get runningRequests(): readonly ExecuteRequest[] | undefined {
    return this.#running?.requests;
  }

  /** Sends a batch; the promise of its outcomes never rejects. */
  run(requests: readonly ExecuteRequest[]): Promise<ExecuteOutcome[]> {
    const first = this.#nextRequest;
    this.#nextRequest = (first + requests.length) % 0x8000_0000;
    const settled = Promise.withResolvers<ExecuteOutcome[]>();
    this.#running = { first, requests, settled };
    requests.forEach((request, index) => {
      const number = first + index;
      this.#live.set(number, new LiveSender(number, request, (message) => this.link.post(message)));
    });
    try {
      this.link.frames.send((frame) => writeBatch(frame, first, requests));
      requests.forEach((_, index) => this.#live.get(first + index)?.begin());
    } catch (reason) {
      // Memory for the batch cannot be had: the Worker never saw it.
      const error = ServerError.from(reason, "UNAVAILABLE");
      requests.forEach((_, index) => this.#drop(first + index));
      this.#finish(requests.map(() => ({ error })));
    }
    return settled.promise;
  }

  #finish(outcomes: ExecuteOutcome[]): void {
    const running = this.#running;
    this.#running = undefined;
    running?.settled.resolve(outcomes);
  }

  #drop(request: number): void {
    this.#live.get(request)?.close();
    this.#live.delete(request);
  }

  #onFrame(frame: ArrivedFrame): void {
    switch (frame.reader.u8()) {
      case FRAME.answers:
        this.#onAnswers(frame);
        return;
      case FRAME.response:
        this.#onResponse(frame);
        return;
      case FRAME.call:
        this.#calls.start(frame);
    }
  }

  #onAnswers(frame: ArrivedFrame): void {
    const running = this.#running;
    if (running === undefined) return frame.release();
    let holders = 1;
    const release = () => {
      if (--holders === 0) frame.release();
    };
    const { reader } = frame;
    const count = reader.u32();
    const expected = running.requests.length;
    if (count !== expected) throw new RangeError(`${count} answers to ${expected} requests`);
    const outcomes: ExecuteOutcome[] = [];
    for (let index = 0; index < count; index++) {
      const kind = reader.u8();
      if (kind === OUTCOME.streamed) outcomes.push({ streamed: true });
      else if (kind === OUTCOME.rescheduled) outcomes.push({ streamed: true, reschedule: true });
      else {
        holders++;
        outcomes.push(this.#readResponse(kind, reader, release));
      }
    }
    release();
    outcomes.forEach((outcome, index) => {
      if (!("streamed" in outcome) || outcome.reschedule) this.#drop(running.first + index);
    });
    this.#finish(outcomes);
  }

  #onResponse(frame: ArrivedFrame): void {
    const { reader } = frame;
    const number = reader.u32();
    const isFinal = reader.u8() === 1;
    const kind = reader.u8();
    const sender = this.#live.get(number);
    if (isFinal) this.#drop(number);
    if (sender === undefined || kind === OUTCOME.none) {
      frame.release();
      sender?.send(undefined, isFinal);
      return;
    }
    sender.send(this.#readResponse(kind, reader, () => frame.release()), isFinal);
  }

  #readResponse(kind: number, reader: FrameReader, release: () => void): ExecuteResponse {
    if (kind === OUTCOME.error) {
      const error = this.#readError(reader);
      release();
      return { error };
    }
    const parameters = reader.parameters();
    const outputs: Tensor[] = [];
    for (let left = reader.u32(); left > 0; left--) outputs.push(reader.tensor(reader.text()));
    let isReleased = false;
    return {
      outputs,
      parameters,
      release: () => {
        if (isReleased) return;
        isReleased = true;
        release();
      },
    };
  }

  #readError(reader: FrameReader): ServerError {
    const code = reader.text() as StatusCode;
    const message = reader.text();
    return reader.u8() === 1 ? new ServerError(code, message) : this.#failure(message, code);
  }

  #failure(message: string, code: StatusCode = "INTERNAL"): ServerError {
    return failure(this.#parts.instanceName, message, code);
  }

  #onMessage(message: Parameters<ConstructorParameters<typeof WorkerLink>[1]["onMessage"]>[0]) {
    switch (message.kind) {
      case "ask":
        void this.#answer(message.id, message.question);
        return;
      case "cancelCall":
        this.#calls.cancel(message.call, message.isAbandoned);
        return;
      case "callTaken":
        this.#calls.taken(message.call, message.count);
        return;
      case "log":
        writeLog(this.#parts.context.log, message);
        return;
      case "mark":
        this.#live.get(message.request)?.request.trace?.mark(message.activity);
        return;
      case "metric":
        this.#operate(message);
        return;
      case "dispose":
        this.#questions.drop(message);
    }
  }

  async #answer(id: number, question: HostQuestion): Promise<void> {
    try {
      this.link.post({ kind: "answer", id, value: await this.#questions.answer(question) });
    } catch (reason) {
      this.link.post({ kind: "answer", id, error: toErrorText(reason) });
    }
  }

  #operate(message: FromWorker & { readonly kind: "metric" }): void {
    try {
      this.#questions.operate(message);
    } catch (reason) {
      const { message: text } = ServerError.from(reason);
      this.#parts.context.log.error(`metric of '${this.#parts.instanceName}': ${text}`);
    }
  }

  #onEnd(reason: string): void {
    const { instanceName, onEnd } = this.#parts;
    const error = this.#failure(`Worker '${instanceName}' is not healthy: ${reason}`);
    const running = this.#running;
    const inBatch = new Set(running?.requests);
    const senders = [...this.#live.values()];
    this.#live.clear();
    for (const sender of senders) {
      sender.close();
      if (!inBatch.has(sender.request)) sender.send({ error }, true);
    }
    // A request of the batch that ended through its sender is not live any more.
    const live = new Set(senders.map(({ request }) => request));
    this.#finish((running?.requests ?? []).map((request) => endOf(request, { live, error })));
    this.#calls.cancelAll();
    this.#questions[Symbol.dispose]();
    onEnd(reason);
  }
}

function endOf(
  request: ExecuteRequest,
  { live, error }: { readonly live: ReadonlySet<ExecuteRequest>; readonly error: ServerError },
): ExecuteOutcome {
  if (!live.has(request)) return { streamed: true };
  return { error };
}

/** The error of requests that a model failed, not its callers (python-backend.md §A8). */
export function failure(instance: string, message: string, code: StatusCode): ServerError {
  return new ServerError(
    code,
    `Failed to process the request(s) for model instance '${instance}', message: ${message}`,
  );
}

function writeLog(log: BackendLog, message: FromWorker & { readonly kind: "log" }): void {
  const { level, place } = message;
  if (level === "verbose") log.verbose(1, message.message, place);
  else log[level](message.message, place);
}
