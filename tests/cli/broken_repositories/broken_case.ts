import {
  buildModel,
  type Dim,
  ONNX_DATA_TYPE,
  type TensorType,
} from "../../fixtures/onnx_builder.ts";

/** A repository with one model that has something wrong, and what becomes of it. */
export interface BrokenCase {
  /** Name of the model and of its folder. */
  readonly name: string;
  /** Text of `config.pbtxt`; absent = there is none. */
  readonly config?: string | Uint8Array;
  /** Further files of the model's folder; version 1 has a file `keep` unless other versions are given. */
  readonly files?: Readonly<Record<string, string | Uint8Array>>;
  /** Further models of the same repository. */
  readonly others?: Readonly<Record<string, Readonly<Record<string, string | Uint8Array>>>>;
  /** Part of a message or hint. */
  readonly says: string;
  /** `line:column` of a fault; "" = a folder. */
  readonly at: string;
  /** Loads after `--fix`. */
  readonly mended: boolean;
}

/** Inputs and outputs of a model that every backend of the tests can serve. */
export const IO = `input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]
`;

/** An ONNX model with Y = X (and YB = XB …): each pair of names has one type and shape. */
export function identityModel(
  pairs: readonly (readonly [string, string])[] = [["X", "Y"]],
  dims: readonly Dim[] = ["batch", 4],
  type: keyof typeof ONNX_DATA_TYPE = "FLOAT",
): Uint8Array {
  const tensor = (name: string): TensorType => ({ name, type: ONNX_DATA_TYPE[type], dims });
  return buildModel({
    nodes: pairs.map(([input, output]) => ({ op: "Identity", inputs: [input], outputs: [output] })),
    inputs: pairs.map(([input]) => tensor(input)),
    outputs: pairs.map(([, output]) => tensor(output)),
  });
}

/** Writes the repository of a case below `root`; returns its path. */
export async function writeCase(root: string, broken: BrokenCase): Promise<string> {
  const repository = `${root}/${broken.name}`;
  const files = {
    ...(broken.config === undefined ? {} : { "config.pbtxt": broken.config }),
    ...(broken.files ?? { "1/keep": "" }),
  };
  for (const [model, contents] of Object.entries({ [broken.name]: files, ...broken.others })) {
    await Deno.mkdir(`${repository}/${model}`, { recursive: true });
    for (const [name, content] of Object.entries(contents)) {
      const path = `${repository}/${model}/${name}`;
      await Deno.mkdir(path.slice(0, path.lastIndexOf("/")), { recursive: true });
      if (typeof content === "string") await Deno.writeTextFile(path, content);
      else await Deno.writeFile(path, content);
    }
  }
  return repository;
}
