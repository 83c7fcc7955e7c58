import { join } from "node:path";
import type { ModelEntry, ModelFile, PackageFile } from "./model_table.ts";
import { readMagikaLabels } from "./model_texts.ts";
import { PACKAGE_FILES as FILES } from "./packages.ts";

/** Where the texts of the examples lie. */
export const EXAMPLE_TEXTS: string = join(import.meta.dirname!, "..", "examples", "models");

/** A file of a package as a file of a model. */
export function asFile(source: PackageFile, to = "1/model.onnx"): ModelFile {
  return { to, sources: [source] };
}

const LABELS: ModelFile = {
  to: "labels.txt",
  sources: [FILES.magikaSettings],
  make: readMagikaLabels,
};

/** What kind of file is this? */
export const FILETYPE_MODELS: readonly ModelEntry[] = [
  { name: "magika", files: [asFile(FILES.magika), LABELS], texts: EXAMPLE_TEXTS },
  { name: "magika_features", files: [], texts: EXAMPLE_TEXTS, needs: ["magika"] },
  { name: "magika_label", files: [LABELS], texts: EXAMPLE_TEXTS },
  {
    name: "filetype",
    files: [],
    texts: EXAMPLE_TEXTS,
    needs: ["magika", "magika_features", "magika_label"],
  },
];

/** What the demo serves. */
export const DEMO_MODELS: readonly ModelEntry[] = [
  ...FILETYPE_MODELS,
  { name: "silero_vad", files: [asFile(FILES.sileroV6)], texts: EXAMPLE_TEXTS },
  { name: "silero_vad_stream", files: [asFile(FILES.sileroV6)], texts: EXAMPLE_TEXTS },
  { name: "speech", files: [], texts: EXAMPLE_TEXTS, needs: ["silero_vad_stream"] },
  {
    name: "ocr",
    files: [asFile(FILES.ocrV4Characters, "1/characters.txt")],
    texts: EXAMPLE_TEXTS,
    needs: ["ocr_det", "ocr_rec", "ocr_cls"],
  },
  { name: "ocr_det", files: [asFile(FILES.ocrV4Det)], texts: EXAMPLE_TEXTS },
  {
    name: "ocr_rec",
    files: [asFile(FILES.ocrV4Rec), asFile(FILES.ocrV4Characters, "characters.txt")],
    texts: EXAMPLE_TEXTS,
  },
  { name: "ocr_cls", files: [asFile(FILES.ocrV4Cls)], texts: EXAMPLE_TEXTS },
];
