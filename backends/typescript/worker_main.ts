import { FrameReceiver } from "./frame_link.ts";
import type {
  Model,
  ModelClass,
  ModelConfigBuilder,
  ModelConfigObject,
  ModelContext,
} from "./model_api.ts";
import { BatchRunner } from "./worker_batch.ts";
import { ModelCalls } from "./worker_calls.ts";
import { ConfigBuilder } from "./worker_config.ts";
import { createModelContext } from "./worker_context.ts";
import { textOfError } from "./worker_errors.ts";
import { WorkerPort } from "./worker_port.ts";
import {
  FRAME,
  type InstanceFacts,
  type ModelFacts,
  type Question,
  type ToWorker,
} from "./worker_protocol.ts";
import { responseRules } from "./worker_response.ts";

/** One model in a Worker: answers the questions of the server and runs batches. */
export class ModelWorker {
  readonly #port: WorkerPort;
  readonly #calls: ModelCalls;
  readonly #frames = new FrameReceiver();
  #model: Model | undefined;
  #runner: BatchRunner | undefined;

  constructor(post: (message: unknown) => void) {
    this.#port = new WorkerPort(post);
    this.#calls = new ModelCalls(this.#port);
  }

  /** For what goes wrong outside of any request. */
  get port(): WorkerPort {
    return this.#port;
  }

  /** Takes a message of the server. */
  receive(message: unknown): void {
    if (typeof message !== "object" || message === null || !("kind" in message)) {
      this.#receiveFrame(message);
      return;
    }
    const control = message as ToWorker;
    switch (control.kind) {
      case "ring":
        this.#receiveFrame(control);
        return;
      case "ask":
        void this.#answer(control.id, control.question);
        return;
      case "answer":
        this.#port.settle(control);
        return;
      case "cancel":
        this.#runner?.find(control.request)?.cancel();
        return;
      case "taken":
        this.#runner?.find(control.request)?.taken(control.count);
    }
  }

  #receiveFrame(message: unknown): void {
    const frame = this.#frames.receive(message);
    if (frame === undefined) return;
    if (frame.reader.u8() === FRAME.batch) {
      this.#runner?.run(frame).catch((reason) => this.#giveUp(reason));
      return;
    }
    this.#calls.receive(frame.reader);
    frame.release();
  }

  /** The model has changed what its Worker is made of: nothing can be answered, so that callers would wait for ever. */
  #giveUp(reason: unknown): void {
    const reasonText = `it cannot answer its requests: ${textOfError(reason).message}`;
    this.#port.post({ kind: "exit", reason: reasonText });
  }

  async #answer(id: number, question: Question): Promise<void> {
    try {
      this.#port.post({ kind: "answer", id, value: await this.#ask(question) });
    } catch (reason) {
      this.#port.post({ kind: "answer", id, error: textOfError(reason) });
    }
  }

  async #ask(question: Question): Promise<unknown> {
    switch (question.what) {
      case "initialize":
        return await this.#initialize(question.file, question.facts);
      case "autoComplete":
        return await autoComplete(question.file, question.config);
      case "isReady":
        return await this.#isReady();
      case "finalize":
        this.#calls.areAllowed = false;
        await this.#model?.finalize?.();
        return undefined;
      case "ping": {
        const { heapUsed, external } = Deno.memoryUsage();
        return heapUsed + external;
      }
    }
  }

  async #initialize(file: string, facts: InstanceFacts): Promise<ModelFacts> {
    const Model = await importModel(file);
    const config = JSON.parse(facts.config) as ModelConfigObject;
    const port = this.#port;
    const context = createModelContext(facts, config, { port, calls: this.#calls });
    const model = new Model();
    await model.initialize?.(context);
    const rules = responseRules(config);
    checkMethods(model, rules.isDecoupled);
    this.#model = model;
    this.#start(model, context, facts);
    this.#calls.areAllowed = true;
    return { hasIsReady: typeof model.isReady === "function" };
  }

  #start(model: Model, context: ModelContext, { maxStreams }: InstanceFacts): void {
    this.#runner = new BatchRunner({
      port: this.#port,
      calls: this.#calls,
      context,
      model,
      rules: responseRules(context.config),
      maxStreams,
    });
  }

  async #isReady(): Promise<boolean> {
    const isReady: unknown = await this.#model?.isReady?.() ?? true;
    if (typeof isReady === "boolean") return isReady;
    throw new TypeError(`isReady() must return a boolean value, got ${Deno.inspect(isReady)}`);
  }
}

async function importModel(file: string): Promise<ModelClass> {
  const module = await import(file) as { readonly default?: unknown };
  const exported = module.default;
  if (typeof exported === "function" && exported.prototype !== undefined) {
    return exported as ModelClass;
  }
  const names = Object.keys(module).map((name) => `'${name}'`).join(", ") || "nothing";
  throw new TypeError(
    exported === undefined
      ? `Model must have a class as its default export ("export default class …"), it exports ${names}`
      : `Default export of a model must be a class, got ${Deno.inspect(exported, { depth: 0 })}`,
  );
}

function checkMethods(model: Model, isDecoupled: boolean): void {
  const hasExecute = typeof model.execute === "function";
  if (typeof model.stream === "function" && !isDecoupled && !hasExecute) {
    throw new TypeError(
      "Model has only `stream`, which is for decoupled models: set model_transaction_policy " +
        "{ decoupled: true } or give it an `execute`",
    );
  }
  if (hasExecute || typeof model.stream === "function") return;
  throw new TypeError("Model does not implement `execute` (or `stream` when it is decoupled)");
}

async function autoComplete(file: string, config: string): Promise<string> {
  const Model = await importModel(file);
  const builder = new ConfigBuilder(JSON.parse(config));
  if (typeof Model.autoCompleteConfig === "function") {
    const returned = await Model.autoCompleteConfig(builder);
    checkReturned(returned, builder);
  }
  return JSON.stringify(builder.config);
}

function checkReturned(returned: unknown, builder: ModelConfigBuilder): void {
  if (returned === undefined || returned === builder) return;
  throw new TypeError(
    "autoCompleteConfig() must return the configuration that it was given, or nothing, got " +
      Deno.inspect(returned, { depth: 0 }),
  );
}
