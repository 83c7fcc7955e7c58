// deno-lint-ignore-file camelcase -- the names of config.pbtxt
import type { ModelConfigBuilder, ModelConfigObject, NewConfigTensor } from "./model_api.ts";

interface MutableTensor {
  name: string;
  data_type: string;
  dims: readonly number[];
  optional?: boolean;
}

type MutableConfig = {
  -readonly [Key in keyof ModelConfigObject]: ModelConfigObject[Key];
};

/** Completes the configuration `config` in place (python-backend.md §A4). */
export class ConfigBuilder implements ModelConfigBuilder {
  readonly config: ModelConfigObject;
  readonly #config: MutableConfig;

  constructor(config: ModelConfigObject) {
    this.config = config;
    this.#config = config;
  }

  setMaxBatchSize(maxBatchSize: number): this {
    if (!Number.isInteger(maxBatchSize) || maxBatchSize < 0) {
      throw this.#error(`max_batch_size must be a whole number from 0 on, got ${maxBatchSize}`);
    }
    const configured = this.#config.max_batch_size;
    if (configured > maxBatchSize) {
      throw this.#error(
        `configuration specifies max_batch_size ${configured}, but the model supports only ` +
          `${maxBatchSize}`,
      );
    }
    this.#config.max_batch_size = maxBatchSize;
    return this;
  }

  setDynamicBatching(): this {
    for (const other of ["sequence_batching", "ensemble_scheduling"]) {
      if (this.#config[other] === undefined) continue;
      throw this.#error(`configuration has '${other}', the model asks for dynamic_batching`);
    }
    this.#config.dynamic_batching ??= {};
    return this;
  }

  addInput(tensor: NewConfigTensor): this {
    this.#add("input", tensor);
    return this;
  }

  addOutput(tensor: Omit<NewConfigTensor, "optional">): this {
    if ((tensor as NewConfigTensor).optional !== undefined) {
      throw this.#error(`output '${tensor.name}' cannot be optional`);
    }
    this.#add("output", tensor);
    return this;
  }

  setDecoupled(isDecoupled: boolean): this {
    if (typeof isDecoupled !== "boolean") {
      throw this.#error(`setDecoupled() needs true or false, got ${Deno.inspect(isDecoupled)}`);
    }
    const configured = this.#config.model_transaction_policy?.decoupled;
    if (configured !== undefined && configured !== isDecoupled) {
      throw this.#error(
        `configuration specifies decoupled: ${configured}, the model is decoupled: ${isDecoupled}`,
      );
    }
    this.#config.model_transaction_policy = { decoupled: isDecoupled };
    return this;
  }

  #add(list: "input" | "output", tensor: NewConfigTensor): void {
    this.#check(list, tensor);
    const { name, dataType, dims, optional } = tensor;
    const tensors = this.#config[list] as unknown as MutableTensor[];
    const existing = tensors.find((each) => each.name === name);
    if (existing === undefined) {
      const isOptional = optional === undefined ? {} : { optional };
      tensors.push({ name, data_type: dataType, dims: [...dims], ...isOptional });
      return;
    }
    this.#checkConflict(list, existing, tensor);
    existing.data_type = dataType;
    existing.dims = [...dims];
    if (optional !== undefined) existing.optional = optional;
  }

  #check(list: string, { name, dataType, dims }: NewConfigTensor): void {
    if (typeof name !== "string" || name === "") {
      throw this.#error(`an ${list} needs a 'name', got ${Deno.inspect(name)}`);
    }
    if (typeof dataType !== "string" || !dataType.startsWith("TYPE_")) {
      const got = Deno.inspect(dataType);
      throw this.#error(`${list} '${name}' needs a 'dataType' such as "TYPE_FP32", got ${got}`);
    }
    if (!Array.isArray(dims) || !dims.every((dim) => Number.isSafeInteger(dim) && dim >= -1)) {
      const got = Deno.inspect(dims);
      throw this.#error(`${list} '${name}' needs 'dims', whole numbers from -1 on, got ${got}`);
    }
  }

  #checkConflict(
    list: string,
    existing: MutableTensor,
    { dataType, dims, optional }: NewConfigTensor,
  ) {
    const { name } = existing;
    if (existing.data_type !== "TYPE_INVALID" && existing.data_type !== dataType) {
      throw this.#error(
        `configuration expects datatype ${existing.data_type} for ${list} '${name}', model ` +
          `provides ${dataType}`,
      );
    }
    if (existing.dims.length > 0 && String(existing.dims) !== String(dims)) {
      throw this.#error(
        `tensor '${name}': the model expects dims [${dims}] but the model configuration ` +
          `specifies dims [${existing.dims}]`,
      );
    }
    if (optional !== undefined && existing.optional && !optional) {
      throw this.#error(`configuration has input '${name}' as optional, the model needs it`);
    }
  }

  #error(text: string): Error {
    return new Error(`Unable to load model '${this.config.name}', ${text}`);
  }
}
