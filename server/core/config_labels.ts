import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { ConfigIssue } from "../../proto/model_config.ts";
import { isPathInside } from "../../proto/model_config_path.ts";
import { ServerError } from "../../proto/status.ts";
import { fileError, readBoundedFile } from "./model_repository_files.ts";

const LABEL_BYTES_MAX = 256 * 1024 * 1024;

/** Labels by output name: line i of its file is the label of class i. */
export type OutputLabels = ReadonlyMap<string, readonly string[]>;

/** Where a model's label files are. */
export interface LabelSource {
  readonly name: string;
  /** Absolute path of `<repository>/<model>`. */
  readonly modelDirectory: string;
}

/** Reads the label files of all outputs; what is wrong comes back as issues, with the reference's texts. */
export async function readLabels(
  config: ModelConfig,
  source: LabelSource,
): Promise<{ labels: OutputLabels; issues: ConfigIssue[] }> {
  const labels = new Map<string, readonly string[]>();
  const issues: ConfigIssue[] = [];
  for (const [index, output] of config.output.entries()) {
    // Paths that lead outside are reported by checkModelIo.
    if (output.labelFilename === "" || !isPathInside(output.labelFilename)) continue;
    const path = `output[${index}].label_filename`;
    if (labels.has(output.name)) {
      const message = `multiple label files for '${output.name}'`;
      issues.push({ path, message, code: "INTERNAL" });
      continue;
    }
    try {
      labels.set(output.name, await readLabelFile(output.labelFilename, source));
    } catch (reason) {
      const { message, code } = ServerError.from(reason);
      issues.push({ path, message, code });
    }
  }
  return { labels, issues };
}

async function readLabelFile(fileName: string, source: LabelSource): Promise<readonly string[]> {
  const file = {
    path: `${source.modelDirectory}/${fileName}`,
    name: `${source.name}/${fileName.replace(/^\/+/, "")}`,
    root: source.modelDirectory,
  };
  const bytes = await readBoundedFile(file, LABEL_BYTES_MAX);
  if (bytes === undefined) throw fileError(file, "No such file or directory");
  const lines = new TextDecoder().decode(bytes).split(/\r?\n/);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
