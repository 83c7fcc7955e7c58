import { datatypeOfConfig } from "../../proto/datatype.ts";
import type {
  ModelConfig,
  ModelWarmup,
  ModelWarmup_Input,
} from "../../proto/gen/model_config_pb.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { configError, type ConfigIssue, type ConfigPositions } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
import { checkBytesElements } from "./bytes_check.ts";
import { fileError, readBoundedFile, readFirstBytes } from "./model_repository_files.ts";
import { checkRequest } from "./request_check.ts";
import { missingInputsError } from "./request_errors.ts";
import { requestPrefix } from "./scheduler/job.ts";
import type { StateRules } from "./scheduler/sequence_state.ts";
import type { TensorRules } from "./tensor_rules.ts";
import { WARMUP_BYTE_SIZE_MAX, WarmupBytes, warmupByteSize } from "./warmup_bytes.ts";

/** A sample that can be run on an instance (scheduling.md §8). */
export interface WarmupSample {
  readonly name: string;
  /** Requests of one execution; each has batch size 1. */
  readonly batchSize: number;
  /** Executions. */
  readonly count: number;
  /** Inputs of each request as the model sees them: those of the configuration, controls, states. */
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly string[];
}

/** The model whose samples are read. */
export interface WarmupSource {
  /** Complete. */
  readonly config: ModelConfig;
  /** Absolute path of `<repository>/<model>`. */
  readonly modelDirectory: string;
  readonly positions?: ConfigPositions;
  readonly rules: TensorRules;
  /** Their initial values stand in for states that a sample does not give. */
  readonly stateRules: StateRules | undefined;
}

/** More executions or requests per sample only delay the load. */
const EXECUTION_COUNT_MAX = 100_000;
/** Requests that run together: rows without a byte would have no other bound than memory. */
const REQUEST_COUNT_MAX = 65_536;
/** So many unknown inputs are named in an error. */
const NAMED_MAX = 8;
const PREFIX = requestPrefix("");

/**
 * Reads and checks the samples of a model; those with `batch_size: 0` are left out.
 * @throws ServerError INVALID_ARG with every fault of every sample.
 */
export async function readWarmupSamples(source: WarmupSource): Promise<readonly WarmupSample[]> {
  const samples: WarmupSample[] = [];
  const issues: ConfigIssue[] = [];
  const data = new WarmupBytes();
  for (const [index, warmup] of source.config.modelWarmup.entries()) {
    if (warmup.batchSize === 0) continue;
    const reader = new SampleReader(warmup, `model_warmup[${index}]`, { source, data });
    const sample = await reader.read();
    if (sample !== undefined) samples.push(sample);
    issues.push(...reader.issues);
  }
  if (issues.length > 0) throw configError(issues, source.positions);
  return samples;
}

interface ReaderContext {
  readonly source: WarmupSource;
  readonly data: WarmupBytes;
}

class SampleReader {
  readonly issues: ConfigIssue[] = [];
  readonly #warmup: ModelWarmup;
  readonly #path: string;
  readonly #source: WarmupSource;
  readonly #data: WarmupBytes;

  constructor(warmup: ModelWarmup, path: string, { source, data }: ReaderContext) {
    this.#warmup = warmup;
    this.#path = path;
    this.#source = source;
    this.#data = data;
  }

  /** The sample, or undefined when it has issues. */
  async read(): Promise<WarmupSample | undefined> {
    const { name, batchSize, count, inputs } = this.#warmup;
    const { rules } = this.#source;
    this.#checkCounts();
    const own: Tensor[] = [];
    const overrides: Tensor[] = [];
    for (const [inputName, input] of Object.entries(inputs)) {
      const path = `${this.#path}.inputs[${JSON.stringify(inputName)}]`;
      const tensor = await this.#tryAsync(path, () => this.#readInput(inputName, input));
      if (tensor === undefined) continue;
      (rules.inputByName.has(inputName) ? own : overrides).push(tensor);
    }
    this.#checkMissing();
    if (this.issues.length > 0) return undefined;
    return this.#try(this.#path, () => {
      const checked = checkRequest(requestOf(own, rules), rules);
      const byteSize = [...own, ...overrides].reduce((sum, { data }) => sum + data.byteLength, 0);
      this.#checkByteSize(byteSize * batchSize);
      return {
        name,
        batchSize,
        count: Math.max(1, count),
        inputs: [...checked.inputs, ...overrides, ...this.#states()],
        outputs: this.#source.stateRules?.outputsWith(checked.outputs) ?? checked.outputs,
      };
    });
  }

  #checkCounts(): void {
    const { name, batchSize, count } = this.#warmup;
    const { maxBatchSize, model } = this.#source.rules;
    const isBatching = maxBatchSize > 0;
    if (isBatching && batchSize > maxBatchSize) {
      this.#add(
        `${this.#path}.batch_size`,
        `failed to run warmup sample '${name}': batch size ${batchSize} for '${model}', max ` +
          `allowed is ${maxBatchSize}; `,
      );
    }
    if (isBatching && batchSize > REQUEST_COUNT_MAX) {
      this.#add(
        `${this.#path}.batch_size`,
        `warmup asks for ${batchSize} requests at once for '${model}', max allowed is ` +
          REQUEST_COUNT_MAX,
      );
    }
    const executionCount = Math.max(1, count) * (isBatching ? 1 : batchSize);
    if (executionCount <= EXECUTION_COUNT_MAX) return;
    this.#add(
      `${this.#path}.count`,
      `warmup asks for ${executionCount} executions for '${model}', max allowed is ` +
        EXECUTION_COUNT_MAX,
    );
  }

  async #readInput(name: string, input: ModelWarmup_Input): Promise<Tensor> {
    const { rules } = this.#source;
    const rule = rules.inputByName.get(name);
    const dims = input.dims.map(Number);
    if (dims.some((dim) => dim < 0)) {
      throw invalid(
        `warmup setting expects all variable-size dimensions are specified for input '${name}'`,
      );
    }
    const datatype = datatypeOfConfig(input.dataType);
    if (datatype === undefined) {
      throw invalid(
        rule === undefined
          ? `${PREFIX}warmup setting expects input '${name}' to have data_type set`
          : `${PREFIX}inference input '${name}' data-type is '<invalid>', but model ` +
            `'${rules.model}' expects '${rule.datatype}'`,
      );
    }
    const shape = rules.maxBatchSize > 0 ? [1, ...dims] : dims;
    const data = await this.#readData(name, input, { datatype, shape });
    const tensor: Tensor = { name, datatype, shape, data };
    if (rule !== undefined) {
      const alone = { inputs: [rule], requiredCount: rule.isOptional ? 0 : 1 };
      checkRequest(requestOf([tensor], rules), { ...rules, ...alone });
    } else if (datatype === "BYTES") {
      checkBytesElements(tensor, elementCount(shape), { model: rules.model, id: "" });
    }
    return tensor;
  }

  #readData(
    name: string,
    input: ModelWarmup_Input,
    tensor: Pick<Tensor, "datatype" | "shape">,
  ): Uint8Array | Promise<Uint8Array> {
    const byteSize = warmupByteSize(name, tensor);
    const { datatype } = tensor;
    switch (input.inputDataType.case) {
      case "zeroData":
        return this.#data.zeros(byteSize);
      case "randomData":
        return datatype === "BYTES"
          ? this.#data.zeros(byteSize)
          : this.#data.random(byteSize, datatype);
      case "inputDataFile":
        return this.#readFile(
          input.inputDataType.value,
          datatype === "BYTES" ? undefined : byteSize,
        );
      default:
        throw invalid(
          `${PREFIX}warmup setting expects input '${name}' to have input_data_type set`,
        );
    }
  }

  /** The first bytes of a file in `warmup/`, or all of it. */
  async #readFile(fileName: string, byteSize: number | undefined): Promise<Uint8Array> {
    const { config, modelDirectory } = this.#source;
    const file = {
      path: `${modelDirectory}/warmup/${fileName}`,
      name: `${config.name}/warmup/${fileName.replace(/^\/+/, "")}`,
      root: modelDirectory,
    };
    const bytes = byteSize === undefined
      ? await readBoundedFile(file, WARMUP_BYTE_SIZE_MAX)
      : await readFirstBytes(file, byteSize);
    if (bytes === undefined) throw fileError(file, "No such file or directory");
    if (byteSize === undefined || bytes.byteLength === byteSize) return bytes;
    throw invalid(
      `${PREFIX}warmup setting expects ${byteSize} bytes, but the data provided from ` +
        `${fileName}only has ${bytes.byteLength} bytes`,
    );
  }

  /** Also names given with other faults count as given. */
  #checkMissing(): void {
    const { rules } = this.#source;
    const given = rules.inputs.filter(({ name }) => Object.hasOwn(this.#warmup.inputs, name));
    if (rules.inputs.every((rule) => rule.isOptional || given.includes(rule))) return;
    const named = given.map(({ name, datatype }) => ({
      name,
      datatype,
      shape: [],
      data: new Uint8Array(),
    }));
    const { message } = missingInputsError(requestOf(named, rules), rules);
    const unknown = this.#unknownNames();
    const hint = unknown.length === 0
      ? ""
      : `; the model has no input '${unknown.slice(0, NAMED_MAX).join("', '")}'`;
    this.issues.push({
      path: this.#path,
      message,
      hint: `warmup sample '${this.#warmup.name}'${hint}`,
      code: "INVALID_ARG",
    });
  }

  /** Names given that are neither inputs nor controls nor states. */
  #unknownNames(): readonly string[] {
    const { config, rules, stateRules } = this.#source;
    const { case: choice, value } = config.schedulingChoice;
    const controls = choice === "sequenceBatching" ? value.controlInput : [];
    return Object.keys(this.#warmup.inputs).filter((name) =>
      !rules.inputByName.has(name) && !controls.some((control) => control.name === name) &&
      !(stateRules?.states ?? []).some(({ inputName }) => inputName === name)
    );
  }

  #checkByteSize(byteSize: number): void {
    if (byteSize <= WARMUP_BYTE_SIZE_MAX) return;
    throw invalid(
      `warmup data must not be larger than ${WARMUP_BYTE_SIZE_MAX} bytes for one execution, got ` +
        byteSize,
    );
  }

  #states(): readonly Tensor[] {
    const states = this.#source.stateRules?.states ?? [];
    return states
      .filter(({ inputName }) => !Object.hasOwn(this.#warmup.inputs, inputName))
      .map(({ initial }) => initial);
  }

  #add(path: string, message: string, code: ServerError["code"] = "INVALID_ARG"): void {
    this.issues.push({ path, message, hint: `warmup sample '${this.#warmup.name}'`, code });
  }

  #try<Value>(path: string, make: () => Value): Value | undefined {
    try {
      return make();
    } catch (reason) {
      this.#addReason(path, reason);
      return undefined;
    }
  }

  async #tryAsync<Value>(path: string, make: () => Promise<Value>): Promise<Value | undefined> {
    try {
      return await make();
    } catch (reason) {
      this.#addReason(path, reason);
      return undefined;
    }
  }

  #addReason(path: string, reason: unknown): void {
    const { message, code } = ServerError.from(reason);
    this.#add(path, message, code);
  }
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}

/** A request as a client would send it: no id, no correlation id, no flags. */
function requestOf(inputs: readonly Tensor[], { model }: TensorRules): InferRequest {
  return {
    modelName: model,
    modelVersion: "",
    id: "",
    correlationId: 0n,
    sequenceStart: false,
    sequenceEnd: false,
    priority: 0,
    timeoutUs: 0,
    parameters: {},
    inputs,
    outputs: [],
  };
}
