import type { ArrivedFrame } from "./frame_link.ts";
import type { InferResponse, Model, ModelAnswers, ModelContext } from "./model_api.ts";
import type { ModelCalls } from "./worker_calls.ts";
import { codedError, textOfError } from "./worker_errors.ts";
import type { WorkerPort } from "./worker_port.ts";
import { type ErrorText, FRAME, OUTCOME } from "./worker_protocol.ts";
import { LiveRequest } from "./worker_request.ts";
import { RequestState } from "./worker_request_state.ts";
import {
  type EncodedResponse,
  encodeResponse,
  type ResponseRules,
  writeResponse,
} from "./worker_response.ts";

interface BatchParts {
  readonly port: WorkerPort;
  readonly calls: ModelCalls;
  readonly context: ModelContext;
  readonly model: Model;
  readonly rules: ResponseRules;
  readonly maxStreams: number;
}

type Outcome = EncodedResponse | "streamed" | "rescheduled";

/** Runs batches on the model of a Worker. */
export class BatchRunner {
  readonly #parts: BatchParts;
  readonly #live = new Map<number, RequestState>();
  readonly #isStreaming: boolean;
  #streamCount = 0;
  #wakeBatch: (() => void) | undefined;
  /** A model that drops a request without an answer must not leave its client waiting. */
  readonly #dropped = new FinalizationRegistry<RequestState>((state) => {
    if (state.isOver) return;
    const text = "The model dropped the request without a final response";
    this.#sendError(state, { code: "INTERNAL", message: text, isGiven: true });
  });

  constructor(parts: BatchParts) {
    this.#parts = parts;
    const { model, rules } = parts;
    this.#isStreaming = typeof model.stream === "function" &&
      (rules.isDecoupled || typeof model.execute !== "function");
  }

  /** The state of a request that is not over. */
  find(request: number): RequestState | undefined {
    return this.#live.get(request);
  }

  /** Runs one batch and reports its outcomes. Never rejects. */
  async run(frame: ArrivedFrame): Promise<void> {
    const { states, requests } = this.#read(frame);
    const outcomes = this.#isStreaming
      ? await this.#stream(states, requests)
      : await this.#execute(states, requests);
    try {
      this.#report(outcomes);
    } catch (reason) {
      // Memory for the outputs cannot be had.
      const error = textOfError(reason);
      this.#report(outcomes.map((outcome) => typeof outcome === "string" ? outcome : { error }));
    }
    outcomes.forEach((outcome, index) => {
      if (outcome !== "streamed") states[index]!.end();
    });
  }

  #report(outcomes: readonly Outcome[]): void {
    this.#parts.port.frames.send((answers) => {
      answers.u8(FRAME.answers).u32(outcomes.length);
      for (const outcome of outcomes) {
        if (typeof outcome === "string") answers.u8(OUTCOME[outcome]);
        else writeResponse(answers, outcome);
      }
    });
  }

  #read(frame: ArrivedFrame): { states: RequestState[]; requests: LiveRequest[] } {
    const { port, rules, calls } = this.#parts;
    const { reader } = frame;
    const first = reader.u32();
    const count = reader.u32();
    let left = count;
    const onOver = (state: RequestState) => {
      this.#live.delete(state.number);
      if (--left === 0) frame.release();
    };
    const states: RequestState[] = [];
    const requests: LiveRequest[] = [];
    for (let index = 0; index < count; index++) {
      const state = new RequestState(first + index, { port, rules, onOver });
      const request = new LiveRequest(reader, state, calls);
      state.requestedOutputs = request.requestedOutputs;
      state.batchSize = request.batchSize;
      this.#live.set(state.number, state);
      states.push(state);
      requests.push(request);
    }
    return { states, requests };
  }

  async #execute(
    states: readonly RequestState[],
    requests: readonly LiveRequest[],
  ): Promise<Outcome[]> {
    const { model, context } = this.#parts;
    try {
      if (typeof model.execute !== "function") {
        throw new TypeError("Model does not implement `execute`");
      }
      const returned = model.execute(requests, context);
      // Awaiting what is no promise would cost a turn.
      const answers = isThenable(returned) ? await returned : returned;
      checkAnswers(answers, requests.length);
      return states.map((state, index) => this.#outcome(state, answers?.[index], requests[index]!));
    } catch (reason) {
      const error = textOfError(reason);
      return states.map((state) => this.#fail(state, error));
    }
  }

  #outcome(
    state: RequestState,
    answer: InferResponse | undefined | null,
    request: LiveRequest,
  ): Outcome {
    const { rules } = this.#parts;
    if (answer === undefined || answer === null) {
      if (state.isRescheduled) return "rescheduled";
      if (!state.isSendTaken && !rules.isDecoupled) {
        const text = "`execute` answered undefined for a request whose `send` it did not take";
        return { error: { code: "INTERNAL", message: text, isGiven: false } };
      }
      if (!state.isOver) this.#dropped.register(request, state);
      return "streamed";
    }
    if (state.isRescheduled) {
      const text = "Expected undefined in the return of `execute` for a rescheduled request";
      return { error: { code: "INTERNAL", message: text, isGiven: false } };
    }
    if (state.sentCount === 0) return encodeResponse(answer, state, rules);
    const text = "`execute` returned a response for a request that was answered through `send`";
    return this.#fail(state, { code: "INTERNAL", message: text, isGiven: false });
  }

  /** The outcome of a request that failed, whatever was sent for it before. */
  #fail(state: RequestState, error: ErrorText): Outcome {
    if (state.sentCount === 0) return { error };
    this.#sendError(state, error);
    return "streamed";
  }

  #sendError(state: RequestState, error: ErrorText): void {
    if (state.isOver) return;
    this.#parts.port.frames.send((frame) => {
      frame.u8(FRAME.response).u32(state.number).u8(1);
      writeResponse(frame, { error });
    });
    state.end();
  }

  async #stream(
    states: readonly RequestState[],
    requests: readonly LiveRequest[],
  ): Promise<Outcome[]> {
    requests.forEach((request, index) => void this.#streamOne(request, states[index]!));
    while (this.#streamCount >= this.#parts.maxStreams) {
      await new Promise<void>((resolve) => this.#wakeBatch = resolve);
    }
    return states.map(() => "streamed");
  }

  async #streamOne(request: LiveRequest, state: RequestState): Promise<void> {
    const { model, context } = this.#parts;
    this.#streamCount++;
    try {
      const responses = model.stream!(request, context);
      if (!isIterable(responses)) {
        throw new TypeError("`stream` must be a generator, async or not, or return one");
      }
      for await (const response of responses) {
        if (state.isAborted || state.isOver) break;
        await state.send(response, false);
        if (state.isAborted) break;
      }
      if (!state.isOver) await state.send(undefined, true);
    } catch (reason) {
      this.#sendError(state, textOfError(reason));
    } finally {
      this.#streamCount--;
      this.#wakeBatch?.();
    }
  }
}

function isThenable(value: unknown): value is Promise<ModelAnswers> {
  return typeof (value as { then?: unknown } | undefined)?.then === "function";
}

function isIterable(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return Symbol.asyncIterator in value || Symbol.iterator in value;
}

function checkAnswers(
  answers: unknown,
  count: number,
): asserts answers is readonly InferResponse[] | undefined {
  if (answers === undefined || answers === null) return;
  if (!Array.isArray(answers)) {
    throw codedTypeError(
      `Expected a list in the return of \`execute\`, found ${Deno.inspect(answers, { depth: 0 })}`,
    );
  }
  if (answers.length === count) return;
  throw codedTypeError(
    "Number of InferResponse objects do not match the number of InferRequest objects. " +
      `InferRequest(s) size is:${count}, and InferResponse(s) size is:${answers.length}`,
  );
}

/** An error whose stack is its text alone: it was not thrown in the model. */
function codedTypeError(message: string): Error {
  const error = codedError("INTERNAL", message) as Error & { code?: unknown };
  delete error.code;
  error.stack = message;
  return error;
}
