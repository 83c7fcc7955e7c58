/** `TF_Output`, passed by value: TF_Operation* oper, int index (with four bytes behind it). */
const OUTPUT = { struct: ["pointer", "i32"] } as const;

/** Bytes of a `TF_TString`. */
export const STRING_BYTE_SIZE = 24;

/**
 * What is used of the C API, with `memcpy` of the C library it is linked with. Calls that fail tell it by their
 * `TF_Status`.
 */
export const SYMBOLS = {
  // const char* TF_Version(void)
  TF_Version: { parameters: [], result: "pointer" },
  // void* memcpy(void* target, const void* source, size_t size)
  memcpy: { parameters: ["pointer", "buffer", "usize"], result: "pointer" },
  // void* malloc(size_t size)
  malloc: { parameters: ["usize"], result: "pointer" },
  // void free(void* memory); its address
  free: { type: "pointer" },
  // TF_Status* TF_NewStatus(void)
  TF_NewStatus: { parameters: [], result: "pointer" },
  // void TF_DeleteStatus(TF_Status* status)
  TF_DeleteStatus: { parameters: ["pointer"], result: "void" },
  // TF_Code TF_GetCode(const TF_Status* status)
  TF_GetCode: { parameters: ["pointer"], result: "i32" },
  // const char* TF_Message(const TF_Status* status)
  TF_Message: { parameters: ["pointer"], result: "pointer" },
  // TF_Library* TF_LoadLibrary(const char* path, TF_Status* status); operators of its own stay for good
  TF_LoadLibrary: { parameters: ["buffer", "pointer"], result: "pointer", nonblocking: true },
  // TF_Buffer* TF_NewBufferFromString(const void* bytes, size_t size); copies
  TF_NewBufferFromString: { parameters: ["buffer", "usize"], result: "pointer" },
  // void TF_DeleteBuffer(TF_Buffer* buffer)
  TF_DeleteBuffer: { parameters: ["pointer"], result: "void" },
  // TF_Graph* TF_NewGraph(void)
  TF_NewGraph: { parameters: [], result: "pointer" },
  // void TF_DeleteGraph(TF_Graph* graph); goes when its sessions have gone
  TF_DeleteGraph: { parameters: ["pointer"], result: "void" },
  // TF_ImportGraphDefOptions* TF_NewImportGraphDefOptions(void)
  TF_NewImportGraphDefOptions: { parameters: [], result: "pointer" },
  // void TF_DeleteImportGraphDefOptions(TF_ImportGraphDefOptions* options)
  TF_DeleteImportGraphDefOptions: { parameters: ["pointer"], result: "void" },
  // void TF_GraphImportGraphDef(TF_Graph* graph, const TF_Buffer* definition, const TF_ImportGraphDefOptions* options,
  //   TF_Status* status)
  TF_GraphImportGraphDef: {
    parameters: ["pointer", "pointer", "pointer", "pointer"],
    result: "void",
    nonblocking: true,
  },
  // TF_Operation* TF_GraphOperationByName(TF_Graph* graph, const char* name)
  TF_GraphOperationByName: { parameters: ["pointer", "buffer"], result: "pointer" },
  // TF_Operation* TF_GraphNextOperation(TF_Graph* graph, size_t* position)
  TF_GraphNextOperation: { parameters: ["pointer", "buffer"], result: "pointer" },
  // const char* TF_OperationName(TF_Operation* operation)
  TF_OperationName: { parameters: ["pointer"], result: "pointer" },
  // const char* TF_OperationOpType(TF_Operation* operation)
  TF_OperationOpType: { parameters: ["pointer"], result: "pointer" },
  // int TF_OperationNumOutputs(TF_Operation* operation)
  TF_OperationNumOutputs: { parameters: ["pointer"], result: "i32" },
  // int TF_OperationNumControlOutputs(TF_Operation* operation)
  TF_OperationNumControlOutputs: { parameters: ["pointer"], result: "i32" },
  // TF_DataType TF_OperationOutputType(TF_Output output)
  TF_OperationOutputType: { parameters: [OUTPUT], result: "i32" },
  // int TF_OperationOutputNumConsumers(TF_Output output)
  TF_OperationOutputNumConsumers: { parameters: [OUTPUT], result: "i32" },
  // int TF_GraphGetTensorNumDims(TF_Graph* graph, TF_Output output, TF_Status* status); -1 = not known
  TF_GraphGetTensorNumDims: { parameters: ["pointer", OUTPUT, "pointer"], result: "i32" },
  // void TF_GraphGetTensorShape(TF_Graph* graph, TF_Output output, int64_t* dims, int count, TF_Status* status)
  TF_GraphGetTensorShape: {
    parameters: ["pointer", OUTPUT, "buffer", "i32", "pointer"],
    result: "void",
  },
  // TF_SessionOptions* TF_NewSessionOptions(void)
  TF_NewSessionOptions: { parameters: [], result: "pointer" },
  // void TF_SetConfig(TF_SessionOptions* options, const void* config, size_t size, TF_Status* status)
  TF_SetConfig: { parameters: ["pointer", "buffer", "usize", "pointer"], result: "void" },
  // void TF_DeleteSessionOptions(TF_SessionOptions* options)
  TF_DeleteSessionOptions: { parameters: ["pointer"], result: "void" },
  // TF_Session* TF_LoadSessionFromSavedModel(const TF_SessionOptions* options, const TF_Buffer* run_options,
  //   const char* folder, const char* const* tags, int tag_count, TF_Graph* graph, TF_Buffer* meta_graph,
  //   TF_Status* status)
  TF_LoadSessionFromSavedModel: {
    parameters: ["pointer", "pointer", "buffer", "buffer", "i32", "pointer", "pointer", "pointer"],
    result: "pointer",
    nonblocking: true,
  },
  // TF_Session* TF_NewSession(TF_Graph* graph, const TF_SessionOptions* options, TF_Status* status)
  TF_NewSession: {
    parameters: ["pointer", "pointer", "pointer"],
    result: "pointer",
    nonblocking: true,
  },
  // void TF_SessionRun(TF_Session* session, const TF_Buffer* run_options,
  //   const TF_Output* inputs, TF_Tensor* const* input_values, int input_count,
  //   const TF_Output* outputs, TF_Tensor** output_values, int output_count,
  //   const TF_Operation* const* targets, int target_count, TF_Buffer* run_metadata, TF_Status* status)
  TF_SessionRun: {
    parameters: [
      ...["pointer", "pointer", "buffer", "buffer", "i32", "buffer", "buffer", "i32"] as const,
      ...["buffer", "i32", "pointer", "pointer"] as const,
    ],
    result: "void",
    nonblocking: true,
  },
  // void TF_CloseSession(TF_Session* session, TF_Status* status)
  TF_CloseSession: { parameters: ["pointer", "pointer"], result: "void", nonblocking: true },
  // void TF_DeleteSession(TF_Session* session, TF_Status* status)
  TF_DeleteSession: { parameters: ["pointer", "pointer"], result: "void" },
  // The same on the blocking pool: the memory of large models takes its time.
  deleteSessionLater: {
    name: "TF_DeleteSession",
    parameters: ["pointer", "pointer"],
    result: "void",
    nonblocking: true,
  },
  // TF_Tensor* TF_AllocateTensor(TF_DataType type, const int64_t* dims, int rank, size_t byte_size)
  TF_AllocateTensor: { parameters: ["i32", "buffer", "i32", "usize"], result: "pointer" },
  // TF_Tensor* TF_NewTensor(TF_DataType type, const int64_t* dims, int rank, void* memory, size_t byte_size,
  //   void (*deallocate)(void* memory, size_t byte_size, void* argument), void* argument)
  TF_NewTensor: {
    parameters: ["i32", "buffer", "i32", "pointer", "usize", "pointer", "pointer"],
    result: "pointer",
  },
  // void TF_DeleteTensor(TF_Tensor* tensor)
  TF_DeleteTensor: { parameters: ["pointer"], result: "void" },
  // TF_DataType TF_TensorType(const TF_Tensor* tensor)
  TF_TensorType: { parameters: ["pointer"], result: "i32" },
  // int TF_NumDims(const TF_Tensor* tensor)
  TF_NumDims: { parameters: ["pointer"], result: "i32" },
  // int64_t TF_Dim(const TF_Tensor* tensor, int index)
  TF_Dim: { parameters: ["pointer", "i32"], result: "i64" },
  // size_t TF_TensorByteSize(const TF_Tensor* tensor)
  TF_TensorByteSize: { parameters: ["pointer"], result: "usize" },
  // void* TF_TensorData(const TF_Tensor* tensor)
  TF_TensorData: { parameters: ["pointer"], result: "pointer" },
  // void TF_StringInit(TF_TString* text)
  TF_StringInit: { parameters: ["pointer"], result: "void" },
  // void TF_StringCopy(TF_TString* text, const char* source, size_t size)
  TF_StringCopy: { parameters: ["pointer", "buffer", "usize"], result: "void" },
  // void TF_StringDealloc(TF_TString* text)
  TF_StringDealloc: { parameters: ["pointer"], result: "void" },
  // Its address.
  stringDealloc: { name: "TF_StringDealloc", type: "pointer" },
  // const char* TF_StringGetDataPointer(const TF_TString* text)
  TF_StringGetDataPointer: { parameters: ["pointer"], result: "pointer" },
  // size_t TF_StringGetSize(const TF_TString* text)
  TF_StringGetSize: { parameters: ["pointer"], result: "usize" },
} as const satisfies Deno.ForeignLibraryInterface;

/** The opened library's functions. */
export type TfCalls = Deno.DynamicLibrary<typeof SYMBOLS>["symbols"];
