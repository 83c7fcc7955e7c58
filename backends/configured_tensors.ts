import {
  DataType,
  type ModelConfig,
  type ModelSequenceBatching_Control,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../proto/gen/model_config_pb.ts";
import { ServerError } from "../proto/status.ts";
import { formatShape } from "../proto/tensor.ts";

/** A tensor that a model of some backend must have in its configuration. */
export interface NeededTensor {
  readonly name: string;
  readonly dataType: DataType;
  /** The dims it must have; absent = one dimension of any size. */
  readonly dims?: readonly bigint[];
}

/** A sequence control that it must have. */
export interface NeededControl {
  readonly name: string;
  readonly kind: ControlKind;
  readonly dataTypes: readonly DataType[];
}

/**
 * Checks that a configuration has exactly these tensors, and at least these controls.
 * @throws ServerError INVALID_ARG that tells all that differs.
 */
export function checkConfiguredTensors(
  config: ModelConfig,
  backendName: string,
  needs: {
    readonly inputs: readonly NeededTensor[];
    readonly outputs: readonly NeededTensor[];
    readonly controls?: readonly NeededControl[];
  },
): void {
  const faults = [
    ...tensorFaults("input", config.input, needs.inputs),
    ...tensorFaults("output", config.output, needs.outputs),
    ...controlFaults(config, needs.controls ?? []),
  ];
  if (faults.length === 0) return;
  throw new ServerError(
    "INVALID_ARG",
    `model '${config.name}' cannot be served by backend '${backendName}': ${faults.join("; ")}`,
  );
}

interface ConfiguredTensor {
  readonly name: string;
  readonly dataType: DataType;
  readonly dims: readonly bigint[];
}

function tensorFaults(
  kind: string,
  configured: readonly ConfiguredTensor[],
  needed: readonly NeededTensor[],
): string[] {
  const faults = needed.map((need) => {
    const expected = `expected ${kind} '${need.name}' of ${DataType[need.dataType]} with ` +
      (need.dims === undefined ? "one dimension" : `dims ${formatShape(need.dims)}`);
    const tensor = configured.find(({ name }) => name === need.name);
    if (tensor === undefined) return `${expected}, got none`;
    const { dataType, dims } = tensor;
    const isRight = dataType === need.dataType &&
      (need.dims === undefined ? dims.length === 1 : formatShape(dims) === formatShape(need.dims));
    return isRight ? "" : `${expected}, got ${DataType[dataType]} with dims ${formatShape(dims)}`;
  });
  const names = needed.map(({ name }) => name);
  const others = configured.filter(({ name }) => !names.includes(name));
  faults.push(...others.map(({ name }) => `it has no ${kind} '${name}', only ${names.join(", ")}`));
  return faults.filter((fault) => fault !== "");
}

function controlFaults(config: ModelConfig, needed: readonly NeededControl[]): string[] {
  const batching = config.schedulingChoice.case === "sequenceBatching"
    ? config.schedulingChoice.value
    : undefined;
  if (needed.length > 0 && batching === undefined) {
    return ["expected 'sequence_batching', got none"];
  }
  const faults = needed.map(({ name, kind, dataTypes }) => {
    const types = dataTypes.map((dataType) => DataType[dataType]).join(" or ");
    const expected = `expected control input '${name}' of kind ${ControlKind[kind]} and ${types}`;
    const control = batching?.controlInput.find((input) => input.name === name)?.control[0];
    if (control === undefined) return `${expected}, got none`;
    if (control.kind === kind && dataTypes.includes(controlType(control))) return "";
    return `${expected}, got ${ControlKind[control.kind]} and ${DataType[controlType(control)]}`;
  });
  return faults.filter((fault) => fault !== "");
}

function controlType(control: ModelSequenceBatching_Control): DataType {
  if (control.kind === ControlKind.CONTROL_SEQUENCE_CORRID) return control.dataType;
  if (control.int32FalseTrue.length > 0) return DataType.TYPE_INT32;
  if (control.fp32FalseTrue.length > 0) return DataType.TYPE_FP32;
  return DataType.TYPE_BOOL;
}
