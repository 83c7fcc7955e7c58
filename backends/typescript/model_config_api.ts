// deno-lint-ignore-file camelcase -- the names of config.pbtxt, which models know it by
/** An input or output of a configuration, as in `config.pbtxt`. `dims` without the batch dimension, -1 = any size. */
export interface ConfigTensor {
  /** Its name. */
  readonly name: string;
  /** `TYPE_FP32` and so on. */
  readonly data_type: string;
  /** Sizes of the dimensions without the batch. */
  readonly dims: readonly number[];
  /** Inputs only. */
  readonly optional?: boolean;
  /** Further fields of `config.pbtxt`. */
  readonly [field: string]: unknown;
}

/** A model configuration as an object: names of `config.pbtxt`, enums by name, 64-bit numbers as numbers. */
export interface ModelConfigObject {
  /** Its name. */
  readonly name: string;
  /** The backend that runs it. */
  readonly backend: string;
  /** Rows of a batch at most; 0 = the model does not batch. */
  readonly max_batch_size: number;
  /** Inputs. */
  readonly input: readonly ConfigTensor[];
  /** Outputs. */
  readonly output: readonly ConfigTensor[];
  /** Texts by key. */
  readonly parameters: Readonly<Record<string, { readonly string_value: string }>>;
  /** Whether a request has any number of responses. */
  readonly model_transaction_policy?: { readonly decoupled: boolean };
  /** Further fields of `config.pbtxt`. */
  readonly [field: string]: unknown;
}

/** An input or output that a model declares. `dims` without the batch dimension, -1 = any size. */
export interface NewConfigTensor {
  /** Its name. */
  readonly name: string;
  /** `TYPE_FP32` and so on. */
  readonly dataType: string;
  /** Sizes of the dimensions without the batch. */
  readonly dims: readonly number[];
  /** Inputs only: requests may leave it out. */
  readonly optional?: boolean;
}

/** Completes a configuration. What `config.pbtxt` says stays: a conflict throws, and the load fails. */
export interface ModelConfigBuilder {
  /** The configuration so far. */
  readonly config: ModelConfigObject;
  /** Rows of a batch that the model takes. @throws Error when the configuration has a larger one. */
  setMaxBatchSize(maxBatchSize: number): this;
  /** No effect when there is one already. @throws Error when the configuration has another scheduler. */
  setDynamicBatching(): this;
  /** Declares an input. @throws Error when the configuration has another datatype, dims or `optional` for that name. */
  addInput(tensor: NewConfigTensor): this;
  /** Declares an output. @throws Error when the configuration has another datatype or dims for that name. */
  addOutput(tensor: Omit<NewConfigTensor, "optional">): this;
  /** Any number of responses per request. @throws Error when the configuration says the opposite. */
  setDecoupled(isDecoupled: boolean): this;
}
