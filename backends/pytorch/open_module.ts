import { ServerError } from "../../proto/status.ts";
import { TorchModule, type TorchRuntime } from "../../ffi/pytorch/mod.ts";
import type { TorchPlace } from "./model.ts";

/** The file of a model. */
export interface ModelFile {
  readonly path: string;
  /** A TorchScript module, or an AOTInductor package. */
  readonly format: "script" | "package";
  /** Runs of a package at the same time. */
  readonly runners: number;
  readonly modelName: string;
}

const NOT_AN_ARCHIVE =
  /PytorchStreamReader failed|constants\.pkl|code\/|file not found: archive|invalid header/;
const NO_FORWARD = /has no method 'forward'/;

/** Loads a file. @throws ServerError in libtorch's words, with what such files are made by. */
export async function openModule(
  runtime: TorchRuntime,
  { path, format, runners, modelName }: ModelFile,
  device: TorchPlace,
): Promise<TorchModule> {
  if (format === "package" && !runtime.hasPackages) {
    throw new ServerError(
      "UNSUPPORTED",
      `model '${modelName}' is an AOTInductor package (platform 'torch_aoti'), which libtorch ` +
        `${runtime.version} cannot load: 2.6 and newer can`,
    );
  }
  try {
    return await TorchModule.open(runtime, { path, format, device, runners });
  } catch (error) {
    const text = (error instanceof Error ? error.message : String(error)).split("\n")
      .map((line) => line.trim()).join(" ");
    throw new ServerError(
      "INTERNAL",
      `failed to load model '${modelName}': ${text.replace(/\.$/, "")}${hintFor(text, format)}`,
      { cause: error },
    );
  }
}

function hintFor(text: string, format: ModelFile["format"]): string {
  if (format === "package") {
    return "; a package (model.pt2) is made by torch._inductor.aoti_compile_and_package of what " +
      "torch.export.export returns, on a machine with the processor and the version of this one";
  }
  if (!NOT_AN_ARCHIVE.test(text) && !NO_FORWARD.test(text)) return "";
  return "; a TorchScript file is made by torch.jit.trace(...).save or torch.jit.script(...).save, " +
    "what torch.save writes (a pickle of weights or of a module) cannot be served";
}
