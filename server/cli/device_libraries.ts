import type { VersionForm } from "../../ffi/library_version.ts";

/** A library that some backend opens when a model asks for it. */
export interface KnownLibrary {
  readonly name: string;
  /** Names the file itself. */
  readonly variable: string;
  /** File names for the system's loader, newest first. */
  readonly fileNames: readonly string[];
  /** Folders in a Python installation's site-packages, and what files in them begin with. */
  readonly wheelFolders: readonly string[];
  readonly wheelFiles: readonly string[];
  readonly form: VersionForm;
  /** File in the wheel that tells the version where the library does not. */
  readonly versionFile?: string;
  readonly backends: readonly string[];
  /** What brings it. */
  readonly packages: string;
}

/** The libraries beyond ONNX Runtime and the driver, which are looked for in their own ways. */
export const KNOWN_LIBRARIES: readonly KnownLibrary[] = [
  {
    name: "CUDA runtime",
    variable: "NEREID_CUDART_LIBRARY",
    fileNames: ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"],
    wheelFolders: ["nvidia/cu13/lib", "nvidia/cuda_runtime/lib"],
    wheelFiles: ["libcudart.so."],
    form: "cudart",
    backends: ["tensorrt", "onnxruntime"],
    packages: "pip install nvidia-cuda-runtime-cu12, or the CUDA toolkit",
  },
  {
    name: "TensorRT",
    variable: "NEREID_TENSORRT_LIBRARY",
    fileNames: [
      "libnvinfer.so.11",
      "libnvinfer.so.10",
      "libnvinfer.so.9",
      "libnvinfer.so.8",
      "libnvinfer.so",
    ],
    wheelFolders: ["tensorrt_libs"],
    wheelFiles: ["libnvinfer.so."],
    form: "tensorrt",
    backends: ["tensorrt"],
    packages: "pip install tensorrt, or apt-get install libnvinfer10 of NVIDIA's repository",
  },
  {
    name: "OpenVINO",
    variable: "NEREID_OPENVINO_LIBRARY",
    fileNames: ["libopenvino_c.so"],
    wheelFolders: ["openvino/libs"],
    wheelFiles: ["libopenvino_c.so"],
    form: "openvino",
    backends: ["openvino", "tensorflow"],
    packages: "pip install openvino",
  },
  {
    name: "libtorch",
    variable: "NEREID_TORCH_LIBRARY",
    fileNames: ["libtorch.so", "libtorch.so.2.6", "libtorch.so.1.13"],
    wheelFolders: ["torch/lib"],
    wheelFiles: ["libtorch.so"],
    form: "none",
    versionFile: "torch/version.py",
    backends: ["pytorch"],
    packages: "pip install torch, or apt-get install libtorch-dev",
  },
  {
    name: "TensorFlow",
    variable: "NEREID_TENSORFLOW_LIBRARY",
    fileNames: ["libtensorflow.so.2", "libtensorflow.so"],
    wheelFolders: ["tensorflow"],
    wheelFiles: ["libtensorflow_cc.so.2"],
    form: "tensorflow",
    backends: ["tensorflow"],
    packages: "pip install tensorflow-cpu, or the libtensorflow archive",
  },
];
