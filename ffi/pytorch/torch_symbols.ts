/** What the shim exports (shim.cc). */
export const TORCH_SYMBOLS = {
  // const char* nereid_torch_version()
  nereid_torch_version: { parameters: [], result: "pointer" },
  // int32_t nereid_torch_features()
  nereid_torch_features: { parameters: [], result: "i32" },
  // int32_t nereid_torch_cuda_count()
  nereid_torch_cuda_count: { parameters: [], result: "i32" },
  // int32_t nereid_torch_threads(int32_t intra, int32_t inter, char* error, size_t error_size)
  nereid_torch_threads: { parameters: ["i32", "i32", "buffer", "usize"], result: "i32" },
  // void* nereid_torch_load(const char* path, int32_t format, int32_t device, int32_t runners, char* error, size_t size)
  nereid_torch_load: {
    parameters: ["buffer", "i32", "i32", "i32", "buffer", "usize"],
    result: "pointer",
    nonblocking: true,
  },
  // const char* nereid_torch_signature(void* model)
  nereid_torch_signature: { parameters: ["pointer"], result: "pointer" },
  // void nereid_torch_free(void* model)
  nereid_torch_free: { parameters: ["pointer"], result: "void" },
  // void* nereid_torch_forward(void* model, int64_t count, const Input* inputs, int32_t flags, char* error, size_t size)
  nereid_torch_forward: {
    parameters: ["pointer", "i64", "buffer", "i32", "buffer", "usize"],
    result: "pointer",
    nonblocking: true,
  },
  // int64_t nereid_torch_output_count(void* result)
  nereid_torch_output_count: { parameters: ["pointer"], result: "i64" },
  // const Output* nereid_torch_outputs(void* result)
  nereid_torch_outputs: { parameters: ["pointer"], result: "pointer" },
  // void nereid_torch_result_free(void* result)
  nereid_torch_result_free: { parameters: ["pointer"], result: "void" },
} as const satisfies Deno.ForeignLibraryInterface;

/** The shim's functions. */
export type TorchCalls = Deno.DynamicLibrary<typeof TORCH_SYMBOLS>["symbols"];

/** Bytes for the text of a failure. */
export const TORCH_ERROR_BYTE_SIZE = 8192;
