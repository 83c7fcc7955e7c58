import { join } from "node:path";
import { buildEfficientNet } from "./classifier/efficientnet.ts";
import { asFile, EXAMPLE_TEXTS, FILETYPE_MODELS } from "./demo_models.ts";
import type { ModelEntry } from "./model_table.ts";
import { readImagenetLabels, readOnnxMetadata } from "./model_texts.ts";
import { PACKAGE_FILES as FILES } from "./packages.ts";

/** Where the configurations lie that only the tests use. */
const TEST_TEXTS = join(import.meta.dirname!, "..", "tests", "real_models", "models");

const SENTENCES: readonly ModelEntry[] = [
  { name: "minilm", files: [asFile(FILES.minilm)], texts: EXAMPLE_TEXTS },
  {
    name: "minilm_tokens",
    files: [asFile(FILES.minilmTokenizer, "1/tokenizer.json")],
    texts: EXAMPLE_TEXTS,
  },
  { name: "minilm_pool", files: [], texts: EXAMPLE_TEXTS },
  {
    name: "sentence_embedding",
    files: [],
    texts: EXAMPLE_TEXTS,
    needs: ["minilm", "minilm_tokens", "minilm_pool"],
  },
];

/** Text in pictures, with the models of PP-OCRv6; the demo has those of PP-OCRv4. */
const TEXT_IN_PICTURES: readonly ModelEntry[] = [
  {
    name: "ocr",
    files: [{
      to: "1/characters.txt",
      sources: [FILES.ocrV6Rec],
      make: (model) => readOnnxMetadata(model!, "character"),
    }],
    texts: EXAMPLE_TEXTS,
    replace: ['string_value: "2.0"', 'string_value: "1.6"'],
    needs: ["ocr_det", "ocr_rec", "ocr_cls"],
  },
  { name: "ocr_det", files: [asFile(FILES.ocrV6Det)], texts: TEST_TEXTS },
  { name: "ocr_rec", files: [asFile(FILES.ocrV6Rec)], texts: TEST_TEXTS },
  { name: "ocr_cls", files: [asFile(FILES.ocrV6Cls)], texts: TEST_TEXTS },
];

const SPEECH: readonly ModelEntry[] = [
  { name: "silero_vad", files: [asFile(FILES.sileroFrame)], texts: TEST_TEXTS },
  { name: "silero_vad_chunks", files: [asFile(FILES.sileroChunks)], texts: TEST_TEXTS },
  { name: "silero_vad_plain", files: [asFile(FILES.sileroPlain)], texts: TEST_TEXTS },
  { name: "silero_vad_stream", files: [asFile(FILES.sileroPlain)], texts: EXAMPLE_TEXTS },
  { name: "speech", files: [], texts: EXAMPLE_TEXTS, needs: ["silero_vad_stream"] },
];

const TITLES: readonly ModelEntry[] = [
  { name: "title_encoder", files: [asFile(FILES.titleEncoder)], texts: EXAMPLE_TEXTS },
  { name: "title_decoder", files: [asFile(FILES.titleDecoder)], texts: EXAMPLE_TEXTS },
  {
    name: "title",
    files: [asFile(FILES.titleTokenizer, "1/tokenizer.json")],
    texts: EXAMPLE_TEXTS,
    needs: ["title_encoder", "title_decoder"],
  },
];

const IMAGENET_LABELS = {
  to: "labels.txt",
  sources: [FILES.imagenetSynsets, FILES.imagenetLemmas],
  make: readImagenetLabels,
};

const LABEL_STEPS = ["preprocessing", "efficientnet_lite0", "postprocessing"];

/** What does a picture show? An ensemble, the same as a program, and the classes of the classifier itself. */
const PICTURES: readonly ModelEntry[] = [
  {
    name: "efficientnet_lite0",
    files: [
      { to: "1/model.onnx", sources: [FILES.efficientnet], make: buildEfficientNet },
      IMAGENET_LABELS,
    ],
    texts: EXAMPLE_TEXTS,
  },
  { name: "preprocessing", files: [], texts: EXAMPLE_TEXTS },
  { name: "postprocessing", files: [IMAGENET_LABELS], texts: EXAMPLE_TEXTS },
  { name: "image_label", files: [], texts: EXAMPLE_TEXTS, needs: LABEL_STEPS },
  { name: "image_label_bls", files: [], texts: EXAMPLE_TEXTS, needs: LABEL_STEPS },
  {
    name: "classify_image",
    files: [],
    texts: TEST_TEXTS,
    needs: ["preprocessing", "efficientnet_lite0"],
  },
];

const OTHERS: readonly ModelEntry[] = [
  { name: "basic_pitch", files: [asFile(FILES.basicPitch)], texts: TEST_TEXTS },
  { name: "nani_encode", files: [asFile(FILES.naniEncode)], texts: TEST_TEXTS },
  { name: "nani_forest", files: [asFile(FILES.naniForest)], texts: TEST_TEXTS },
  { name: "nani", files: [], texts: TEST_TEXTS, needs: ["nani_encode", "nani_forest"] },
  { name: "light_squeezenet", files: [asFile(FILES.lightSqueezenet)], texts: "" },
  { name: "light_resnet50", files: [asFile(FILES.lightResnet50)], texts: "" },
  { name: "light_densenet121", files: [asFile(FILES.lightDensenet121)], texts: "" },
  { name: "mul_1", files: [asFile(FILES.mul)], texts: "" },
  { name: "sigmoid", files: [asFile(FILES.sigmoid)], texts: "" },
  // Must be refused: its second output is a sequence of maps.
  { name: "iris", files: [asFile(FILES.iris)], texts: "" },
];

/** All real models, examples and tests (real-models.md §3). */
export const REAL_MODELS: readonly ModelEntry[] = [
  ...FILETYPE_MODELS,
  ...SENTENCES,
  ...TEXT_IN_PICTURES,
  ...SPEECH,
  ...TITLES,
  ...PICTURES,
  ...OTHERS,
];
