import { NativeHandle, type NativePointer } from "../handle.ts";
import { addressOfPointer, cString, CStringArray, pointerAt, whileHolding } from "../memory.ts";
import { TfGraph, type TfPort } from "./graph.ts";
import type { TfRuntime } from "./runtime.ts";
import { TfError, TfStatus } from "./status.ts";
import type { TfCalls } from "./symbols.ts";
import { readTensor, type TfOutputValue, type TfTensor } from "./tensor.ts";

const INTERNAL = 13;

/** What a run is fed with in one place. */
export interface TfFeed {
  readonly port: TfPort;
  readonly tensor: TfTensor;
}

/** A graph that runs; runs may overlap. */
export class TfSession extends NativeHandle implements AsyncDisposable {
  readonly runtime: TfRuntime;
  readonly graph: TfGraph;

  private constructor(runtime: TfRuntime, graph: TfGraph, pointer: NativePointer) {
    super(pointer, (session) => destroySession(runtime.calls, session));
    this.runtime = runtime;
    this.graph = graph;
  }

  /**
   * Reads a folder with a SavedModel: the graph with these tags, its variables, and runs what initializes it.
   * @param config encoded `ConfigProto`.
   * @throws TfError
   */
  static async openSavedModel(
    runtime: TfRuntime,
    folder: string,
    { tags, config }: {
      readonly tags: readonly string[];
      readonly config: Uint8Array<ArrayBuffer>;
    },
  ): Promise<TfSession> {
    const { calls } = runtime;
    const graph = TfGraph.create(runtime);
    using status = new TfStatus(calls);
    const path = cString(folder);
    const names = new CStringArray(tags);
    try {
      using options = new SessionOptions(calls, config);
      const pointer = await whileHolding(
        [path, names, graph, status, options],
        () =>
          calls.TF_LoadSessionFromSavedModel(
            ...[options.pointer, null, path, names.array] as const,
            ...[names.length, graph.pointer, null, status.pointer] as const,
          ),
      );
      status.check();
      return new TfSession(runtime, graph, notNull(pointer));
    } catch (error) {
      graph[Symbol.dispose]();
      throw error;
    }
  }

  /** Runs a graph that {@linkcode TfGraph.read} made; it belongs to the session. @throws TfError; the graph is freed then */
  static async overGraph(
    runtime: TfRuntime,
    graph: TfGraph,
    config: Uint8Array<ArrayBuffer>,
  ): Promise<TfSession> {
    const { calls } = runtime;
    try {
      using status = new TfStatus(calls);
      using options = new SessionOptions(calls, config);
      const pointer = await whileHolding(
        [graph, status, options],
        () => calls.TF_NewSession(graph.pointer, options.pointer, status.pointer),
      );
      status.check();
      return new TfSession(runtime, graph, notNull(pointer));
    } catch (error) {
      graph[Symbol.dispose]();
      throw error;
    }
  }

  /**
   * Computes outputs, on the blocking pool.
   * @param targets operations to run besides, for what they do.
   * @throws TfError
   */
  async run(
    inputs: readonly TfFeed[],
    outputs: readonly TfPort[],
    targets: readonly NativePointer[] = [],
  ): Promise<TfOutputValue[]> {
    const fed = outputs.map(({ words }) =>
      inputs.find(({ port }) => port.words.every((word, index) => word === words[index]))
    );
    // The library refuses to give back what it is fed with.
    const fetched = outputs.filter((_, index) => fed[index] === undefined);
    const values = fetched.length + targets.length === 0
      ? []
      : await this.#fetch(inputs, fetched, targets);
    return fed.map((input) =>
      input === undefined ? values.shift()! : readTensor(this.runtime, input.tensor.pointer)
    );
  }

  async #fetch(
    inputs: readonly TfFeed[],
    outputs: readonly TfPort[],
    targets: readonly NativePointer[],
  ): Promise<TfOutputValue[]> {
    const { calls } = this.runtime;
    const { pointer } = this;
    using status = new TfStatus(calls);
    const cells = packRun(inputs, outputs, targets);
    await whileHolding([this, inputs, cells, status], () =>
      calls.TF_SessionRun(
        ...[pointer, null, cells.inputs, cells.inputValues, inputs.length] as const,
        ...[cells.outputs, cells.outputValues, outputs.length] as const,
        ...[cells.targets, targets.length, null, status.pointer] as const,
      ));
    const made = Array.from(cells.outputValues.subarray(0, outputs.length), pointerAt);
    try {
      status.check();
      return made.map((tensor) => readTensor(this.runtime, notNull(tensor)));
    } finally {
      for (const tensor of made) if (tensor !== null) calls.TF_DeleteTensor(tensor);
    }
  }

  /** Ends it without holding up the event loop. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.disposed) return;
    const { calls } = this.runtime;
    const pointer = this.detach();
    using status = new TfStatus(calls);
    await whileHolding([status], () => calls.TF_CloseSession(pointer, status.pointer));
    await whileHolding([status], () => calls.deleteSessionLater(pointer, status.pointer));
    this.graph[Symbol.dispose]();
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]();
    this.graph[Symbol.dispose]();
  }
}

function destroySession(calls: TfCalls, session: NativePointer): void {
  using status = new TfStatus(calls);
  calls.TF_DeleteSession(session, status.pointer);
}

class SessionOptions extends NativeHandle {
  constructor(calls: TfCalls, config: Uint8Array<ArrayBuffer>) {
    const pointer = notNull(calls.TF_NewSessionOptions());
    super(pointer, (options) => calls.TF_DeleteSessionOptions(options));
    if (config.byteLength === 0) return;
    using status = new TfStatus(calls);
    calls.TF_SetConfig(pointer, config, BigInt(config.byteLength), status.pointer);
    status.check();
  }
}

/** The arrays of one `TF_SessionRun`: two words for each `TF_Output`, one for each pointer. */
function packRun(
  inputs: readonly TfFeed[],
  outputs: readonly TfPort[],
  targets: readonly NativePointer[],
) {
  const words = (count: number) => new BigUint64Array(new ArrayBuffer(8 * Math.max(count, 1)));
  const cells = {
    inputs: words(2 * inputs.length),
    inputValues: words(inputs.length),
    outputs: words(2 * outputs.length),
    outputValues: words(outputs.length),
    targets: words(targets.length),
  };
  inputs.forEach(({ port, tensor }, index) => {
    cells.inputs.set(port.words, 2 * index);
    cells.inputValues[index] = addressOfPointer(tensor.pointer);
  });
  outputs.forEach(({ words }, index) => cells.outputs.set(words, 2 * index));
  targets.forEach((target, index) => cells.targets[index] = addressOfPointer(target));
  return cells;
}

function notNull(pointer: Deno.PointerValue): NativePointer {
  if (pointer === null) throw new TfError(INTERNAL, "the library made nothing");
  return pointer;
}
