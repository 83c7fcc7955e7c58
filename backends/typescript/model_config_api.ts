// deno-lint-ignore-file camelcase -- the names of config.pbtxt, which models know it by
/** An input or output of a configuration, as in `config.pbtxt`. `dims` without the batch dimension, -1 = any size. */
export interface ConfigTensor {
  readonly name: string;
  /** `TYPE_FP32` and so on. */
  readonly data_type: string;
  readonly dims: readonly number[];
  /** Inputs only. */
  readonly optional?: boolean;
  /** Further fields of `config.pbtxt`. */
  readonly [field: string]: unknown;
}

/** A model configuration as an object: names of `config.pbtxt`, enums by name, 64-bit numbers as numbers. */
export interface ModelConfigObject {
  readonly name: string;
  readonly backend: string;
  readonly max_batch_size: number;
  readonly input: readonly ConfigTensor[];
  readonly output: readonly ConfigTensor[];
  readonly parameters: Readonly<Record<string, { readonly string_value: string }>>;
  readonly model_transaction_policy?: { readonly decoupled: boolean };
  /** Further fields of `config.pbtxt`. */
  readonly [field: string]: unknown;
}

/** An input or output that a model declares. `dims` without the batch dimension, -1 = any size. */
export interface NewConfigTensor {
  readonly name: string;
  /** `TYPE_FP32` and so on. */
  readonly dataType: string;
  readonly dims: readonly number[];
  /** Inputs only: requests may leave it out. */
  readonly optional?: boolean;
}

/** Completes a configuration. What `config.pbtxt` says stays: a conflict throws, and the load fails. */
export interface ModelConfigBuilder {
  /** The configuration so far. */
  readonly config: ModelConfigObject;
  /** @throws Error when the configuration has a larger one. */
  setMaxBatchSize(maxBatchSize: number): this;
  /** No effect when there is one already. @throws Error when the configuration has another scheduler. */
  setDynamicBatching(): this;
  /** @throws Error when the configuration has another datatype, other dims or another `optional` for that name. */
  addInput(tensor: NewConfigTensor): this;
  /** @throws Error when the configuration has another datatype or other dims for that name. */
  addOutput(tensor: Omit<NewConfigTensor, "optional">): this;
  /** @throws Error when the configuration says the opposite. */
  setDecoupled(isDecoupled: boolean): this;
}
