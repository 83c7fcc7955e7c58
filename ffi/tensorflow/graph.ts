import { NativeHandle, type NativePointer } from "../handle.ts";
import { addressOfPointer, cString, readCString, whileHolding } from "../memory.ts";
import type { TfRuntime } from "./runtime.ts";
import { TfError, TfStatus } from "./status.ts";

const RESOURCE_EXHAUSTED = 8;

/** One output of an operation, which runs are fed with or asked for. */
export interface TfPort {
  /** `TF_Output`: the operation's address, and the output's number. */
  readonly words: BigUint64Array<ArrayBuffer>;
  /** `TF_DATA_TYPE` number. */
  readonly dataType: number;
}

/** An operation of a graph. */
export interface TfOperation {
  readonly name: string;
  /** Such as `Placeholder`. */
  readonly type: string;
  readonly pointer: NativePointer;
}

/** Operations and what flows between them. */
export class TfGraph extends NativeHandle {
  readonly #runtime: TfRuntime;

  private constructor(runtime: TfRuntime, pointer: NativePointer) {
    super(pointer, (graph) => runtime.calls.TF_DeleteGraph(graph));
    this.#runtime = runtime;
  }

  /** An empty one. */
  static create(runtime: TfRuntime): TfGraph {
    const pointer = runtime.calls.TF_NewGraph();
    if (pointer === null) throw new TfError(RESOURCE_EXHAUSTED, "no graph was made");
    return new TfGraph(runtime, pointer);
  }

  /** Out of an encoded `GraphDef`. @throws TfError */
  static async read(runtime: TfRuntime, definition: Uint8Array<ArrayBuffer>): Promise<TfGraph> {
    const { calls } = runtime;
    const graph = TfGraph.create(runtime);
    using status = new TfStatus(calls);
    const buffer = calls.TF_NewBufferFromString(definition, BigInt(definition.byteLength));
    const options = calls.TF_NewImportGraphDefOptions();
    try {
      await whileHolding(
        [graph, status],
        () => calls.TF_GraphImportGraphDef(graph.pointer, buffer, options, status.pointer),
      );
      status.check();
      return graph;
    } catch (error) {
      graph[Symbol.dispose]();
      throw error;
    } finally {
      calls.TF_DeleteImportGraphDefOptions(options);
      calls.TF_DeleteBuffer(buffer);
    }
  }

  /** Undefined when there is no operation of that name. */
  operation(name: string): NativePointer | undefined {
    return this.#runtime.calls.TF_GraphOperationByName(this.pointer, cString(name)) ?? undefined;
  }

  /** An output of an operation by `name` or `name:index`; undefined when there is none. */
  port(tensorName: string): TfPort | undefined {
    const match = /^(.+):(\d+)$/.exec(tensorName);
    const index = Number(match?.[2] ?? 0);
    const operation = this.operation(match?.[1] ?? tensorName);
    if (operation === undefined) return undefined;
    const { calls } = this.#runtime;
    if (index >= calls.TF_OperationNumOutputs(operation)) return undefined;
    const words = portWords(operation, index);
    return { words, dataType: calls.TF_OperationOutputType(bytesOf(words)) };
  }

  /** Sizes of what flows there: -1 = free; undefined when the rank is not known. @throws TfError */
  dims({ words }: TfPort): number[] | undefined {
    const { calls } = this.#runtime;
    using status = new TfStatus(calls);
    const rank = calls.TF_GraphGetTensorNumDims(this.pointer, bytesOf(words), status.pointer);
    status.check();
    if (rank < 0) return undefined;
    const dims = new BigInt64Array(new ArrayBuffer(8 * Math.max(rank, 1)));
    if (rank > 0) {
      calls.TF_GraphGetTensorShape(this.pointer, bytesOf(words), dims, rank, status.pointer);
      status.check();
    }
    return Array.from(dims.subarray(0, rank), Number);
  }

  /** All operations, in the order of the graph. */
  *operations(): Generator<TfOperation> {
    const { calls } = this.#runtime;
    const position = new BigUint64Array(new ArrayBuffer(8));
    for (;;) {
      const pointer = calls.TF_GraphNextOperation(this.pointer, position);
      if (pointer === null) return;
      yield {
        name: readCString(calls.TF_OperationName(pointer)),
        type: readCString(calls.TF_OperationOpType(pointer)),
        pointer,
      };
    }
  }

  /** True when nothing in the graph uses what the operation makes. */
  isEnd({ pointer }: TfOperation): boolean {
    const { calls } = this.#runtime;
    const count = calls.TF_OperationNumOutputs(pointer);
    if (count === 0 || calls.TF_OperationNumControlOutputs(pointer) > 0) return false;
    for (let index = 0; index < count; index++) {
      const output = bytesOf(portWords(pointer, index));
      if (calls.TF_OperationOutputNumConsumers(output) > 0) return false;
    }
    return true;
  }

  /** How many outputs an operation has. */
  outputCount({ pointer }: TfOperation): number {
    return this.#runtime.calls.TF_OperationNumOutputs(pointer);
  }
}

function portWords(operation: NativePointer, index: number): BigUint64Array<ArrayBuffer> {
  const words = new BigUint64Array(new ArrayBuffer(16));
  words[0] = addressOfPointer(operation);
  words[1] = BigInt(index);
  return words;
}

function bytesOf(words: BigUint64Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(words.buffer);
}
