/** Methods of `apiv::VRuntime` that are used here. */
export interface RuntimeSlots {
  readonly getPImpl: number;
  readonly deserializeCudaEngine: number;
  readonly setDLACore: number;
  readonly getLogger: number;
  readonly setEngineHostCodeAllowed: number;
}

/** Methods of `apiv::VCudaEngine` that are used here. */
export interface EngineSlots {
  readonly getPImpl: number;
  readonly createExecutionContext: number;
  readonly getName: number;
  readonly getNbOptimizationProfiles: number;
  readonly getTensorShape: number;
  readonly getTensorDataType: number;
  readonly getTensorLocation: number;
  readonly isShapeInferenceIO: number;
  readonly getTensorIOMode: number;
  readonly getTensorBytesPerComponent: number;
  readonly getTensorComponentsPerElement: number;
  readonly getTensorFormat: number;
  readonly getTensorFormatDesc: number;
  readonly getTensorVectorizedDim: number;
  readonly getProfileShape: number;
  readonly getNbIOTensors: number;
  readonly getIOTensorName: number;
}

/** Methods of `apiv::VExecutionContext` that are used here. */
export interface ContextSlots {
  readonly getPImpl: number;
  readonly getEngine: number;
  readonly setName: number;
  readonly getName: number;
  readonly setOptimizationProfileAsync: number;
  readonly setInputShape: number;
  readonly getTensorShape: number;
  readonly setTensorAddress: number;
  readonly setInputTensorAddress: number;
  readonly inferShapes: number;
  readonly setOutputAllocator: number;
  readonly getMaxOutputSize: number;
  readonly enqueueV3: number;
}

/** What differs between the major versions of TensorRT (native-abi.md §1.3 to §1.5). */
export interface SlotTable {
  /** As users read it. */
  readonly name: string;
  /** Bits of one dimension in `Dims`. */
  readonly dimBits: 32 | 64;
  /** Whether `createExecutionContext` takes a strategy, and `deserializeCudaEngine` no plugin factory. */
  readonly takesStrategy: boolean;
  /** Whether each context needs a profile of its own: then one engine serves one instance. */
  readonly ownsProfiles: boolean;
  /** Whether `ILogger` is a versioned interface. */
  readonly versionsLogger: boolean;
  /** Whether `IOutputAllocator` is one. */
  readonly versionsAllocator: boolean;
  readonly runtime: RuntimeSlots;
  readonly engine: EngineSlots;
  readonly context: ContextSlots;
}

const EIGHT: Omit<SlotTable, "name"> = {
  dimBits: 32,
  takesStrategy: false,
  ownsProfiles: true,
  versionsLogger: false,
  versionsAllocator: false,
  runtime: {
    getPImpl: 16,
    deserializeCudaEngine: 2,
    setDLACore: 3,
    getLogger: 9,
    setEngineHostCodeAllowed: 20,
  },
  engine: {
    getPImpl: 48,
    createExecutionContext: 11,
    getName: 21,
    getNbOptimizationProfiles: 22,
    getTensorShape: 34,
    getTensorDataType: 35,
    getTensorLocation: 36,
    isShapeInferenceIO: 37,
    getTensorIOMode: 38,
    getTensorBytesPerComponent: 39,
    getTensorComponentsPerElement: 40,
    getTensorFormat: 41,
    getTensorFormatDesc: 42,
    getTensorVectorizedDim: 43,
    getProfileShape: 44,
    getNbIOTensors: 45,
    getIOTensorName: 46,
  },
  context: {
    getPImpl: 49,
    getEngine: 8,
    setName: 9,
    getName: 10,
    setOptimizationProfileAsync: 25,
    setInputShape: 29,
    getTensorShape: 30,
    setTensorAddress: 32,
    setInputTensorAddress: 34,
    inferShapes: 35,
    setOutputAllocator: 39,
    getMaxOutputSize: 41,
    enqueueV3: 44,
  },
};

const TEN: SlotTable = {
  name: "10",
  dimBits: 64,
  takesStrategy: true,
  ownsProfiles: false,
  versionsLogger: false,
  versionsAllocator: true,
  runtime: {
    getPImpl: 2,
    deserializeCudaEngine: 3,
    setDLACore: 5,
    getLogger: 11,
    setEngineHostCodeAllowed: 21,
  },
  engine: {
    getPImpl: 2,
    createExecutionContext: 5,
    getName: 9,
    getNbOptimizationProfiles: 10,
    getTensorShape: 19,
    getTensorDataType: 20,
    getTensorLocation: 21,
    isShapeInferenceIO: 22,
    getTensorIOMode: 23,
    getTensorBytesPerComponent: 24,
    getTensorComponentsPerElement: 25,
    getTensorFormat: 26,
    getTensorFormatDesc: 27,
    getTensorVectorizedDim: 28,
    getProfileShape: 29,
    getNbIOTensors: 30,
    getIOTensorName: 31,
  },
  context: {
    getPImpl: 2,
    getEngine: 7,
    setName: 8,
    getName: 9,
    setOptimizationProfileAsync: 17,
    setInputShape: 21,
    getTensorShape: 22,
    setTensorAddress: 24,
    setInputTensorAddress: 26,
    inferShapes: 28,
    setOutputAllocator: 32,
    getMaxOutputSize: 34,
    enqueueV3: 37,
  },
};

const ELEVEN: SlotTable = {
  name: "11",
  dimBits: 64,
  takesStrategy: true,
  ownsProfiles: false,
  versionsLogger: true,
  versionsAllocator: true,
  runtime: {
    getPImpl: 2,
    deserializeCudaEngine: 3,
    setDLACore: 4,
    getLogger: 10,
    setEngineHostCodeAllowed: 20,
  },
  engine: {
    getPImpl: 2,
    createExecutionContext: 5,
    getName: 7,
    getNbOptimizationProfiles: 8,
    getTensorShape: 15,
    getTensorDataType: 16,
    getTensorLocation: 17,
    isShapeInferenceIO: 18,
    getTensorIOMode: 19,
    getTensorBytesPerComponent: 20,
    getTensorComponentsPerElement: 21,
    getTensorFormat: 22,
    getTensorFormatDesc: 23,
    getTensorVectorizedDim: 24,
    getProfileShape: 25,
    getNbIOTensors: 26,
    getIOTensorName: 27,
  },
  context: {
    getPImpl: 2,
    getEngine: 7,
    setName: 8,
    getName: 9,
    setOptimizationProfileAsync: 16,
    setInputShape: 20,
    getTensorShape: 21,
    setTensorAddress: 23,
    setInputTensorAddress: 25,
    inferShapes: 27,
    setOutputAllocator: 31,
    getMaxOutputSize: 33,
    enqueueV3: 36,
  },
};

/** Version numbers below this one have the form major · 1000 + minor · 100 + patch. */
const LONG_VERSION = 10_000;

/** A version of the library. */
export interface TensorRtVersion {
  /** As `getInferLibVersion` gives it. */
  readonly number: number;
  readonly major: number;
  readonly minor: number;
  /** `10.3.0`. */
  readonly text: string;
}

/** Takes a number of `getInferLibVersion` apart: 8601 is 8.6.1, 101600 is 10.16.0. */
export function parseVersion(number: number): TensorRtVersion {
  const unit = number >= LONG_VERSION ? 10_000 : 1000;
  const major = Math.floor(number / unit);
  const minor = Math.floor((number % unit) / 100);
  return { number, major, minor, text: `${major}.${minor}.${number % 100}` };
}

/** The table of a version; undefined for versions whose methods are not known. */
export function findSlotTable({ major, minor }: TensorRtVersion): SlotTable | undefined {
  switch (major) {
    case 8:
      return minor >= 6 ? { ...EIGHT, name: "8.6" } : undefined;
    case 9:
      return { ...EIGHT, name: "9" };
    case 10:
      return TEN;
    case 11:
      return ELEVEN;
    default:
      return undefined;
  }
}

/** Versions that have a table, for messages. */
export const SUPPORTED_VERSIONS = "8.6, 9, 10 or 11";
