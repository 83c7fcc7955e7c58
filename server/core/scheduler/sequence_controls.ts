import type { Datatype } from "../../../proto/datatype.ts";
import { datatypeOfConfig } from "../../../proto/datatype.ts";
import {
  type ModelSequenceBatching,
  type ModelSequenceBatching_Control,
  ModelSequenceBatching_Control_Kind,
} from "../../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { type Job, requestPrefix } from "./job.ts";

/** One of START, END, READY: the two values of its tensor. */
interface FlagControl {
  readonly kind: ModelSequenceBatching_Control_Kind;
  readonly values: readonly [off: Tensor, on: Tensor];
}

/** The tensor that tells the model the correlation id. */
interface IdControl {
  readonly name: string;
  readonly datatype: Datatype;
}

const { CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END, CONTROL_SEQUENCE_CORRID } =
  ModelSequenceBatching_Control_Kind;

/**
 * The control tensors of a model (scheduling.md §3.5): shape [1], or [1,1] when the model batches. Tensors of flags are
 * made once and shared by all requests; that of a correlation id is made once per sequence.
 */
export class SequenceControls {
  readonly #model: string;
  readonly #shape: readonly number[];
  readonly #flags: readonly FlagControl[];
  readonly #id: IdControl | undefined;
  /** Flag tensors by START + 2 · END, all with READY. */
  readonly #ready: readonly (readonly Tensor[])[];
  /** What a place without a request gets, by name. */
  readonly nullTensors: ReadonlyMap<string, Tensor>;

  constructor(
    model: { readonly name: string; readonly maxBatchSize: number },
    batching: ModelSequenceBatching,
  ) {
    this.#model = model.name;
    this.#shape = model.maxBatchSize > 0 ? [1, 1] : [1];
    const flags: FlagControl[] = [];
    for (const { name, control } of batching.controlInput) {
      for (const each of control) {
        if (each.kind === CONTROL_SEQUENCE_CORRID) {
          // Checked at load: no other types get here.
          this.#id = { name, datatype: datatypeOfConfig(each.dataType)! };
        } else {
          flags.push({ kind: each.kind, values: this.#pair(name, each) });
        }
      }
    }
    this.#flags = flags;
    this.#ready = [0, 1, 2, 3].map((bits) => this.#combination((bits & 1) > 0, (bits & 2) > 0));
    const nulls = flags.map(({ values }) => values[0]);
    if (this.#id !== undefined) nulls.push(this.idTensor(this.#id.datatype === "BYTES" ? "" : 0n)!);
    this.nullTensors = new Map(nulls.map((tensor) => [tensor.name, tensor]));
  }

  /** The flag tensors of a request; the caller must not change the list. */
  flagTensors({ sequenceStart, sequenceEnd }: Pick<Job, "sequenceStart" | "sequenceEnd">) {
    return this.#ready[(sequenceStart ? 1 : 0) + (sequenceEnd ? 2 : 0)]!;
  }

  /** The tensor with a correlation id; undefined when the model does not want it. */
  idTensor(id: bigint | string): Tensor | undefined {
    if (this.#id === undefined) return undefined;
    return { ...this.#id, shape: this.#shape, data: idBytes(id, this.#id.datatype) };
  }

  /** True when the model wants texts as correlation ids. */
  get wantsText(): boolean {
    return this.#id?.datatype === "BYTES";
  }

  /** @throws ServerError INVALID_ARG when the model wants its ids in another form (http.md §9.8). */
  checkId({ id, correlationId }: Pick<Job, "id" | "correlationId">): void {
    if (this.#id === undefined) return;
    const isText = typeof correlationId === "string";
    if (isText === this.wantsText) return;
    throw new ServerError(
      "INVALID_ARG",
      `${requestPrefix(id)}sequence batching control '${this.#id.name}' data-type is ` +
        `'${isText ? "BYTES" : "UINT64"}', but model '${this.#model}' expects ` +
        `'${this.#id.datatype}'`,
    );
  }

  #combination(isStart: boolean, isEnd: boolean): Tensor[] {
    return this.#flags.map(({ kind, values }) => {
      if (kind === CONTROL_SEQUENCE_START) return values[isStart ? 1 : 0];
      if (kind === CONTROL_SEQUENCE_END) return values[isEnd ? 1 : 0];
      return values[1];
    });
  }

  #pair(name: string, control: ModelSequenceBatching_Control): [Tensor, Tensor] {
    const make = (datatype: Datatype, data: ArrayBufferView[]): [Tensor, Tensor] => {
      const [off, on] = data.map(({ buffer, byteOffset, byteLength }): Tensor => ({
        name,
        datatype,
        shape: this.#shape,
        data: new Uint8Array(buffer, byteOffset, byteLength),
      }));
      return [off!, on!];
    };
    const { int32FalseTrue, fp32FalseTrue, boolFalseTrue } = control;
    if (int32FalseTrue.length > 0) {
      return make(
        "INT32",
        int32FalseTrue.map((v) => Int32Array.of(v)),
      );
    }
    if (fp32FalseTrue.length > 0) return make("FP32", fp32FalseTrue.map((v) => Float32Array.of(v)));
    return make("BOOL", boolFalseTrue.map((value) => Uint8Array.of(value ? 1 : 0)));
  }
}

/** Numbers are cut to the size of the type, little-endian; a text is preceded by its length. */
function idBytes(id: bigint | string, datatype: Datatype): Uint8Array {
  if (typeof id === "string") {
    const text = new TextEncoder().encode(id);
    const data = new Uint8Array(4 + text.length);
    new DataView(data.buffer).setUint32(0, text.length, true);
    data.set(text, 4);
    return data;
  }
  const data = new Uint8Array(8);
  new DataView(data.buffer).setBigUint64(0, BigInt.asUintN(64, id), true);
  return datatype === "UINT32" || datatype === "INT32" ? data.slice(0, 4) : data;
}
