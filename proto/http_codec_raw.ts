import { LENGTH_PREFIX_BYTES } from "./bytes_tensor.ts";
import { DATATYPES } from "./datatype.ts";
import type { DecodedInfer, InferTarget } from "./http_codec.ts";
import type { InferInput, TensorDescription } from "./infer.ts";
import { ServerError } from "./status.ts";

/** What must be known of a model to read a raw request for it. */
export interface RawModel {
  readonly inputs: readonly TensorDescription[];
  /** 0 = the model does not batch. */
  readonly maxBatchSize: number;
}

/**
 * Decodes a raw binary request (http.md §9.2): the whole body is the data of the model's only input, whose shape
 * follows from the model and the number of bytes.
 * @throws ServerError INVALID_ARG when the input or its shape cannot be deduced.
 */
export function decodeRawInferRequest(
  body: Uint8Array,
  model: RawModel,
  target: InferTarget,
): DecodedInfer {
  const [description] = model.inputs;
  if (description === undefined || model.inputs.length !== 1) {
    throw new ServerError(
      "INVALID_ARG",
      "Raw request must only have 1 input (found 1) to be deduced but got " +
        `${model.inputs.length} inputs in '${target.modelName}' model configuration`,
    );
  }
  if (body.length > target.maxInputBytes) {
    throw new ServerError(
      "INVALID_ARG",
      `Raw input has a byte_size (${body.length} bytes) that exceeds the maximum allowed value ` +
        `of ${target.maxInputBytes} bytes. Use --http-max-input-size to increase the limit.`,
    );
  }
  return {
    request: {
      modelName: target.modelName,
      modelVersion: target.modelVersion,
      id: "",
      correlationId: 0n,
      sequenceStart: false,
      sequenceEnd: false,
      priority: 0,
      timeoutUs: 0,
      parameters: {},
      inputs: [deduceInput(body, description, model.maxBatchSize > 0)],
      outputs: [],
    },
    forms: { isBinaryDefault: true, isBinary: [] },
  };
}

function deduceInput(
  body: Uint8Array,
  { name, datatype, shape }: TensorDescription,
  isBatching: boolean,
): InferInput {
  const batch = isBatching ? [1] : [];
  const dims = isBatching ? shape.slice(1) : [...shape];
  if (datatype === "BYTES") {
    if (dims.length !== 1 || dims[0] !== 1) {
      throw new ServerError(
        "INVALID_ARG",
        `For BYTE datatype raw input '${name}', the model must have input shape [1]`,
      );
    }
    return { name, datatype, shape: [...batch, 1], data: withLength(body) };
  }
  const variable = dims.indexOf(-1);
  if (variable >= 0) {
    if (dims.lastIndexOf(-1) !== variable) {
      throw new ServerError(
        "INVALID_ARG",
        `The shape of the raw input '${name}' can not be deduced because there are more than ` +
          `one variable-sized dimension`,
      );
    }
    const rowBytes = dims.reduce((size, dim) => dim === -1 ? size : size * dim, 1) *
      DATATYPES[datatype].byteSize;
    // A remainder shows in the core's comparison of sizes.
    dims[variable] = rowBytes === 0 ? 0 : Math.floor(body.length / rowBytes);
  }
  return { name, datatype, shape: [...batch, ...dims], data: body };
}

function withLength(content: Uint8Array): Uint8Array {
  const element = new Uint8Array(LENGTH_PREFIX_BYTES + content.length);
  new DataView(element.buffer).setUint32(0, content.length, true);
  element.set(content, LENGTH_PREFIX_BYTES);
  return element;
}
