/**
 * The part of `struct OrtApi` that is used: an array of function pointers to which each release only appends. Slot
 * numbers were computed from the C header. `S` below stands for a result `OrtStatus*` (null = success).
 */

const S = "pointer";

/**
 * S (OrtSession*, const OrtRunOptions*, const char* const* inputNames, const OrtValue* const* inputs, size_t,
 * const char* const* outputNames, size_t, OrtValue** outputs); null outputs are allocated by the runtime
 */
const RUN = {
  slot: 9,
  parameters: ["pointer", "pointer", "buffer", "buffer", "usize", "buffer", "usize", "buffer"],
  result: S,
} as const satisfies OrtFunction;

const UPDATE_PARAMETERS = ["pointer", "buffer", "buffer", "usize"] as const;

const APPEND = {
  parameters: ["pointer", "pointer"],
  result: S,
  nonblocking: true,
} as const;

/** First API version with `TensorTypeAndShape_HasShape`. */
export const HAS_SHAPE_API_VERSION = 24;
/** First API version that tells which provider has which node. */
export const ASSIGNMENT_API_VERSION = 24;

/** Slot, parameter types and result of each function, under its C name. */
export const ORT_FUNCTIONS = {
  /** OrtErrorCode (const OrtStatus*) */
  GetErrorCode: { slot: 1, parameters: ["pointer"], result: "i32" },
  /** const char* (const OrtStatus*) */
  GetErrorMessage: { slot: 2, parameters: ["pointer"], result: "pointer" },
  /** void (OrtStatus*) */
  ReleaseStatus: { slot: 93, parameters: ["pointer"], result: "void" },

  /** S (OrtLoggingLevel, const char* id, OrtEnv** out) */
  CreateEnv: { slot: 3, parameters: ["i32", "buffer", "buffer"], result: S },
  /** S (OrtLoggingLevel, const char* id, const OrtThreadingOptions*, OrtEnv** out) */
  CreateEnvWithGlobalThreadPools: {
    slot: 119,
    parameters: ["i32", "buffer", "pointer", "buffer"],
    result: S,
  },
  /** S (const OrtEnv*) */
  DisableTelemetryEvents: { slot: 6, parameters: ["pointer"], result: S },
  /** S (OrtThreadingOptions** out) */
  CreateThreadingOptions: { slot: 121, parameters: ["buffer"], result: S },
  /** S (OrtThreadingOptions*, int) */
  SetGlobalIntraOpNumThreads: { slot: 147, parameters: ["pointer", "i32"], result: S },
  /** S (OrtThreadingOptions*, int) */
  SetGlobalInterOpNumThreads: { slot: 148, parameters: ["pointer", "i32"], result: S },
  /** void (OrtThreadingOptions*) */
  ReleaseThreadingOptions: { slot: 122, parameters: ["pointer"], result: "void" },
  /** void (OrtEnv*) */
  ReleaseEnv: { slot: 92, parameters: ["pointer"], result: "void" },

  /** S (OrtSessionOptions** out) */
  CreateSessionOptions: { slot: 10, parameters: ["buffer"], result: S },
  /** S (OrtSessionOptions*, ExecutionMode) */
  SetSessionExecutionMode: { slot: 13, parameters: ["pointer", "i32"], result: S },
  /** S (OrtSessionOptions*) */
  DisableMemPattern: { slot: 17, parameters: ["pointer"], result: S },
  /** S (OrtSessionOptions*) */
  DisableCpuMemArena: { slot: 19, parameters: ["pointer"], result: S },
  /** S (OrtSessionOptions*, int severity) */
  SetSessionLogSeverityLevel: { slot: 22, parameters: ["pointer", "i32"], result: S },
  /** S (OrtSessionOptions*, GraphOptimizationLevel) */
  SetSessionGraphOptimizationLevel: { slot: 23, parameters: ["pointer", "i32"], result: S },
  /** S (OrtSessionOptions*, int) */
  SetIntraOpNumThreads: { slot: 24, parameters: ["pointer", "i32"], result: S },
  /** S (OrtSessionOptions*, int) */
  SetInterOpNumThreads: { slot: 25, parameters: ["pointer", "i32"], result: S },
  /** S (OrtSessionOptions*) */
  DisablePerSessionThreads: { slot: 120, parameters: ["pointer"], result: S },
  /** S (OrtSessionOptions*, const char* key, const char* value) */
  AddSessionConfigEntry: { slot: 130, parameters: ["pointer", "buffer", "buffer"], result: S },
  /** S (OrtSessionOptions*, const ORTCHAR_T* path) */
  RegisterCustomOpsLibrary_V2: { slot: 228, parameters: ["pointer", "buffer"], result: S },
  /** S (OrtCUDAProviderOptionsV2** out) */
  CreateCUDAProviderOptions: { slot: 205, parameters: ["buffer"], result: S },
  /** S (OrtCUDAProviderOptionsV2*, const char* const* keys, const char* const* values, size_t) */
  UpdateCUDAProviderOptions: { slot: 206, parameters: UPDATE_PARAMETERS, result: S },
  /** void (OrtCUDAProviderOptionsV2*) */
  ReleaseCUDAProviderOptions: { slot: 208, parameters: ["pointer"], result: "void" },
  /** S (OrtTensorRTProviderOptionsV2** out) */
  CreateTensorRTProviderOptions: { slot: 171, parameters: ["buffer"], result: S },
  /** S (OrtTensorRTProviderOptionsV2*, const char* const* keys, const char* const* values, size_t) */
  UpdateTensorRTProviderOptions: { slot: 172, parameters: UPDATE_PARAMETERS, result: S },
  /** void (OrtTensorRTProviderOptionsV2*) */
  ReleaseTensorRTProviderOptions: { slot: 174, parameters: ["pointer"], result: "void" },
  /** S (char*** out, int* count) */
  GetAvailableProviders: { slot: 125, parameters: ["buffer", "buffer"], result: S },
  /** S (char** list, int count) */
  ReleaseAvailableProviders: { slot: 126, parameters: ["pointer", "i32"], result: S },
  /** void (OrtSessionOptions*) */
  ReleaseSessionOptions: { slot: 100, parameters: ["pointer"], result: "void" },

  /** S (const OrtSession*, size_t* out) */
  SessionGetInputCount: { slot: 30, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtSession*, size_t* out) */
  SessionGetOutputCount: { slot: 31, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtSession*, size_t* out) */
  SessionGetOverridableInitializerCount: {
    slot: 32,
    parameters: ["pointer", "buffer"],
    result: S,
  },
  /** S (const OrtSession*, size_t index, OrtTypeInfo** out) */
  SessionGetInputTypeInfo: { slot: 33, parameters: ["pointer", "usize", "buffer"], result: S },
  /** S (const OrtSession*, size_t index, OrtTypeInfo** out) */
  SessionGetOutputTypeInfo: { slot: 34, parameters: ["pointer", "usize", "buffer"], result: S },
  /** S (const OrtSession*, size_t index, OrtTypeInfo** out) */
  SessionGetOverridableInitializerTypeInfo: {
    slot: 35,
    parameters: ["pointer", "usize", "buffer"],
    result: S,
  },
  /** S (const OrtSession*, size_t index, OrtAllocator*, char** out) */
  SessionGetInputName: {
    slot: 36,
    parameters: ["pointer", "usize", "pointer", "buffer"],
    result: S,
  },
  /** S (const OrtSession*, size_t index, OrtAllocator*, char** out) */
  SessionGetOutputName: {
    slot: 37,
    parameters: ["pointer", "usize", "pointer", "buffer"],
    result: S,
  },
  /** S (const OrtSession*, size_t index, OrtAllocator*, char** out) */
  SessionGetOverridableInitializerName: {
    slot: 38,
    parameters: ["pointer", "usize", "pointer", "buffer"],
    result: S,
  },
  /**
   * S (const OrtSession*, const OrtEpAssignedSubgraph* const** out, size_t* count); borrowed from the session, which
   * was made with `session.record_ep_graph_assignment_info`; since 1.24, as the five behind it
   */
  Session_GetEpGraphAssignmentInfo: {
    slot: 407,
    parameters: ["pointer", "buffer", "buffer"],
    result: S,
    since: ASSIGNMENT_API_VERSION,
  },
  /** S (const OrtEpAssignedSubgraph*, const char** out) */
  EpAssignedSubgraph_GetEpName: {
    slot: 408,
    parameters: ["pointer", "buffer"],
    result: S,
    since: ASSIGNMENT_API_VERSION,
  },
  /** S (const OrtEpAssignedSubgraph*, const OrtEpAssignedNode* const** out, size_t* count) */
  EpAssignedSubgraph_GetNodes: {
    slot: 409,
    parameters: ["pointer", "buffer", "buffer"],
    result: S,
    since: ASSIGNMENT_API_VERSION,
  },
  /** S (const OrtEpAssignedNode*, const char** out) */
  EpAssignedNode_GetName: {
    slot: 410,
    parameters: ["pointer", "buffer"],
    result: S,
    since: ASSIGNMENT_API_VERSION,
  },
  /** S (const OrtEpAssignedNode*, const char** out) */
  EpAssignedNode_GetOperatorType: {
    slot: 412,
    parameters: ["pointer", "buffer"],
    result: S,
    since: ASSIGNMENT_API_VERSION,
  },
  /** void (OrtSession*) */
  ReleaseSession: { slot: 95, parameters: ["pointer"], result: "void" },

  /** `Run` on the calling thread, for runs that take no longer than handing them over. */
  RunBlocking: RUN,

  /** S (OrtRunOptions** out) */
  CreateRunOptions: { slot: 39, parameters: ["buffer"], result: S },
  /** S (OrtRunOptions*) */
  RunOptionsSetTerminate: { slot: 46, parameters: ["pointer"], result: S },
  /** S (OrtRunOptions*) */
  RunOptionsUnsetTerminate: { slot: 47, parameters: ["pointer"], result: S },
  /** S (OrtRunOptions*, const char* key, const char* value) */
  AddRunConfigEntry: { slot: 165, parameters: ["pointer", "buffer", "buffer"], result: S },
  /** void (OrtRunOptions*) */
  ReleaseRunOptions: { slot: 97, parameters: ["pointer"], result: "void" },

  /** S (const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo** out); the result is borrowed */
  CastTypeInfoToTensorInfo: { slot: 55, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtTypeInfo*, ONNXType* out) */
  GetOnnxTypeFromTypeInfo: { slot: 56, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType* out) */
  GetTensorElementType: { slot: 60, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtTensorTypeAndShapeInfo*, size_t* out) */
  GetDimensionsCount: { slot: 61, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtTensorTypeAndShapeInfo*, int64_t* dims, size_t count) */
  GetDimensions: { slot: 62, parameters: ["pointer", "buffer", "usize"], result: S },
  /** S (const OrtTensorTypeAndShapeInfo*, const char** symbols, size_t count); the texts are borrowed */
  GetSymbolicDimensions: { slot: 63, parameters: ["pointer", "buffer", "usize"], result: S },
  /** bool (const OrtTensorTypeAndShapeInfo*); since 1.24 */
  TensorTypeAndShape_HasShape: {
    slot: 390,
    parameters: ["pointer"],
    result: "bool",
    since: HAS_SHAPE_API_VERSION,
  },
  /** void (OrtTypeInfo*) */
  ReleaseTypeInfo: { slot: 98, parameters: ["pointer"], result: "void" },
  /** void (OrtTensorTypeAndShapeInfo*) */
  ReleaseTensorTypeAndShapeInfo: { slot: 99, parameters: ["pointer"], result: "void" },

  /** S (OrtAllocator*, const int64_t* shape, size_t rank, ONNXTensorElementDataType, OrtValue** out) */
  CreateTensorAsOrtValue: {
    slot: 48,
    parameters: ["pointer", "buffer", "usize", "i32", "buffer"],
    result: S,
  },
  /**
   * S (const OrtMemoryInfo*, void* data, size_t bytes, const int64_t* shape, size_t rank,
   * ONNXTensorElementDataType, OrtValue** out)
   */
  CreateTensorWithDataAsOrtValue: {
    slot: 49,
    parameters: ["pointer", "buffer", "usize", "buffer", "usize", "i32", "buffer"],
    result: S,
  },
  /** The same over memory that is known by its address, such as a device's. */
  CreateTensorWithAddressAsOrtValue: {
    slot: 49,
    parameters: ["pointer", "pointer", "usize", "buffer", "usize", "i32", "buffer"],
    result: S,
  },
  /** S (OrtValue*, void** out) */
  GetTensorMutableData: { slot: 51, parameters: ["pointer", "buffer"], result: S },
  /** S (OrtValue*, const char* const* texts, size_t count); texts end with a zero byte */
  FillStringTensor: { slot: 52, parameters: ["pointer", "buffer", "usize"], result: S },
  /** S (const OrtValue*, size_t* out) */
  GetStringTensorDataLength: { slot: 53, parameters: ["pointer", "buffer"], result: S },
  /** S (const OrtValue*, void* content, size_t bytes, size_t* offsets, size_t count) */
  GetStringTensorContent: {
    slot: 54,
    parameters: ["pointer", "buffer", "usize", "buffer", "usize"],
    result: S,
  },
  /** S (OrtValue*, size_t index, size_t bytes, char** buffer); the caller fills `buffer`, zero bytes allowed */
  GetResizedStringTensorElementBuffer: {
    slot: 252,
    parameters: ["pointer", "usize", "usize", "buffer"],
    result: S,
  },
  /** S (const OrtValue*, OrtTensorTypeAndShapeInfo** out) */
  GetTensorTypeAndShape: { slot: 65, parameters: ["pointer", "buffer"], result: S },
  /** void (OrtValue*) */
  ReleaseValue: { slot: 96, parameters: ["pointer"], result: "void" },

  /** S (OrtAllocatorType, OrtMemType, OrtMemoryInfo** out) */
  CreateCpuMemoryInfo: { slot: 69, parameters: ["i32", "i32", "buffer"], result: S },
  /** S (const char* name, OrtAllocatorType, int deviceId, OrtMemType, OrtMemoryInfo** out) */
  CreateMemoryInfo: {
    slot: 68,
    parameters: ["buffer", "i32", "i32", "i32", "buffer"],
    result: S,
  },
  /** S (OrtSession*, OrtIoBinding** out) */
  CreateIoBinding: { slot: 134, parameters: ["pointer", "buffer"], result: S },
  /** void (OrtIoBinding*) */
  ReleaseIoBinding: { slot: 135, parameters: ["pointer"], result: "void" },
  /** S (OrtIoBinding*, const char* name, const OrtValue*) */
  BindInput: { slot: 136, parameters: ["pointer", "buffer", "pointer"], result: S },
  /** S (OrtIoBinding*, const char* name, const OrtValue*) */
  BindOutput: { slot: 137, parameters: ["pointer", "buffer", "pointer"], result: S },
  /** S (OrtIoBinding*, const char* name, const OrtMemoryInfo*) */
  BindOutputToDevice: { slot: 138, parameters: ["pointer", "buffer", "pointer"], result: S },
  /** S (const OrtIoBinding*, OrtAllocator*, OrtValue*** out, size_t* count); the caller frees array and values */
  GetBoundOutputValues: {
    slot: 140,
    parameters: ["pointer", "pointer", "buffer", "buffer"],
    result: S,
  },
  /** void (OrtIoBinding*) */
  ClearBoundInputs: { slot: 141, parameters: ["pointer"], result: "void" },
  /** void (OrtIoBinding*) */
  ClearBoundOutputs: { slot: 142, parameters: ["pointer"], result: "void" },
  /** void (OrtMemoryInfo*) */
  ReleaseMemoryInfo: { slot: 94, parameters: ["pointer"], result: "void" },
  /** S (OrtAllocator** out); the result is borrowed */
  GetAllocatorWithDefaultOptions: { slot: 78, parameters: ["buffer"], result: S },
  /** S (OrtAllocator*, void*) */
  AllocatorFree: { slot: 76, parameters: ["pointer", "pointer"], result: S },
} as const satisfies Record<string, OrtFunction>;

/** Functions that may take long: they run on the blocking pool. */
export const ORT_BLOCKING_FUNCTIONS = {
  /** S (const OrtEnv*, const ORTCHAR_T* path, const OrtSessionOptions*, OrtSession** out) */
  CreateSession: {
    slot: 7,
    parameters: ["pointer", "buffer", "pointer", "buffer"],
    result: S,
    nonblocking: true,
  },
  /** S (const OrtEnv*, const void* bytes, size_t, const OrtSessionOptions*, OrtSession** out) */
  CreateSessionFromArray: {
    slot: 8,
    parameters: ["pointer", "buffer", "usize", "pointer", "buffer"],
    result: S,
    nonblocking: true,
  },
  /** S (OrtSessionOptions*, const char* provider, const char* const* keys, const char* const* values, size_t) */
  SessionOptionsAppendExecutionProvider: {
    slot: 216,
    parameters: ["pointer", "buffer", "buffer", "buffer", "usize"],
    result: S,
    nonblocking: true,
  },
  /** S (OrtSessionOptions*, const OrtCUDAProviderOptionsV2*); opens the provider's library */
  SessionOptionsAppendExecutionProvider_CUDA_V2: { slot: 204, ...APPEND },
  /** S (OrtSessionOptions*, const OrtTensorRTProviderOptionsV2*); opens the provider's library */
  SessionOptionsAppendExecutionProvider_TensorRT_V2: { slot: 170, ...APPEND },
  /** S (OrtSessionOptions*, const char* const* keys, const char* const* values, size_t) */
  SessionOptionsAppendExecutionProvider_OpenVINO_V2: {
    slot: 275,
    parameters: UPDATE_PARAMETERS,
    result: S,
    nonblocking: true,
  },
  /** S (OrtSession*, const OrtRunOptions*, const OrtIoBinding*) */
  RunWithBinding: {
    slot: 133,
    parameters: ["pointer", "pointer", "pointer"],
    result: S,
    nonblocking: true,
  },
  /** S (OrtIoBinding*) */
  SynchronizeBoundInputs: {
    slot: 202,
    parameters: ["pointer"],
    result: S,
    nonblocking: true,
  },
  /** S (OrtIoBinding*) */
  SynchronizeBoundOutputs: {
    slot: 203,
    parameters: ["pointer"],
    result: S,
    nonblocking: true,
  },
  /** The same on the blocking pool. */
  Run: { ...RUN, nonblocking: true },
} as const satisfies Record<string, OrtFunction>;

interface OrtFunction {
  readonly slot: number;
  readonly parameters: readonly Deno.NativeType[];
  readonly result: Deno.NativeResultType;
  readonly nonblocking?: boolean;
  /** First API version whose table reaches this far; absent = all that are supported. */
  readonly since?: number;
}

type Calls<T extends Record<string, OrtFunction>> = {
  readonly [K in keyof T]: Deno.UnsafeFnPointer<T[K]>["call"];
};

/** The callable functions. */
export type OrtCalls =
  & Calls<typeof ORT_FUNCTIONS>
  & Calls<typeof ORT_BLOCKING_FUNCTIONS>;

/** Reads the function pointers out of `const OrtApi*`; `version` decides which later slots may be read. */
export function bindOrtCalls(api: Deno.PointerObject, version: number): OrtCalls {
  const view = new Deno.UnsafePointerView(api);
  const calls: Record<string, unknown> = {};
  const table: Record<string, OrtFunction> = { ...ORT_FUNCTIONS, ...ORT_BLOCKING_FUNCTIONS };
  for (const [name, definition] of Object.entries(table)) {
    if (version < (definition.since ?? 0)) continue;
    const pointer = view.getPointer(definition.slot * 8);
    if (pointer === null) {
      throw new TypeError(`Cannot bind ${name}: slot ${definition.slot} of OrtApi is null`);
    }
    const callable = new Deno.UnsafeFnPointer(
      pointer as Deno.PointerObject<Deno.ForeignFunction>,
      definition as Deno.ForeignFunction,
    );
    calls[name] = callable.call.bind(callable);
  }
  return calls as OrtCalls;
}
