/** `ov_shape_t`, passed by value: int64_t rank, int64_t* dims. */
const SHAPE = { struct: ["i64", "pointer"] } as const;

/** Properties a model may be compiled with; each takes two arguments behind the fixed ones. */
export const MAX_PROPERTY_COUNT = 8;

/**
 * What is used of the C API; all calls return an `ov_status_e`. Functions with variable arguments are declared with as
 * many as we ever pass: on x86-64 and on arm64 Linux these arrive as any others, and those not counted are not read.
 */
export const SYMBOLS = {
  // ov_status_e ov_get_openvino_version(ov_version_t* version)
  ov_get_openvino_version: { parameters: ["buffer"], result: "i32" },
  // void ov_version_free(ov_version_t* version)
  ov_version_free: { parameters: ["buffer"], result: "void" },
  // const char* ov_get_error_info(ov_status_e status)
  ov_get_error_info: { parameters: ["i32"], result: "pointer" },
  // const char* ov_get_last_err_msg(); one text for the whole process
  ov_get_last_err_msg: { parameters: [], result: "pointer" },
  lastErrorAddress: { name: "ov_get_last_err_msg", type: "pointer" },
  // void ov_free(const char* content)
  ov_free: { parameters: ["pointer"], result: "void" },
  // ov_status_e ov_core_create(ov_core_t** core)
  ov_core_create: { parameters: ["buffer"], result: "i32" },
  // ov_status_e ov_core_add_extension(const ov_core_t* core, const char* path)
  ov_core_add_extension: { parameters: ["pointer", "buffer"], result: "i32", nonblocking: true },
  // ov_status_e ov_core_get_available_devices(const ov_core_t* core, ov_available_devices_t* devices)
  ov_core_get_available_devices: {
    parameters: ["pointer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  // void ov_available_devices_free(ov_available_devices_t* devices)
  ov_available_devices_free: { parameters: ["buffer"], result: "void" },
  // ov_status_e ov_core_read_model(const ov_core_t* core, const char* path, const char* weights, ov_model_t** model)
  ov_core_read_model: {
    parameters: ["pointer", "buffer", "buffer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  // void ov_model_free(ov_model_t* model)
  ov_model_free: { parameters: ["pointer"], result: "void" },
  // ov_status_e ov_core_compile_model(const ov_core_t* core, const ov_model_t* model, const char* device,
  //   size_t argument_count, ov_compiled_model_t** compiled, ... const char* key, const char* value)
  ov_core_compile_model: {
    parameters: [
      ...["pointer", "pointer", "buffer", "usize", "buffer"] as const,
      ...["buffer", "buffer", "buffer", "buffer", "buffer", "buffer", "buffer", "buffer"] as const,
      ...["buffer", "buffer", "buffer", "buffer", "buffer", "buffer", "buffer", "buffer"] as const,
    ],
    result: "i32",
    nonblocking: true,
  },
  // void ov_compiled_model_free(ov_compiled_model_t* compiled)
  ov_compiled_model_free: { parameters: ["pointer"], result: "void" },
  // ov_status_e ov_compiled_model_inputs_size(const ov_compiled_model_t* compiled, size_t* count)
  ov_compiled_model_inputs_size: { parameters: ["pointer", "buffer"], result: "i32" },
  // ov_status_e ov_compiled_model_outputs_size(const ov_compiled_model_t* compiled, size_t* count)
  ov_compiled_model_outputs_size: { parameters: ["pointer", "buffer"], result: "i32" },
  // ov_status_e ov_compiled_model_input_by_index(const ov_compiled_model_t* compiled, size_t index, port** port)
  ov_compiled_model_input_by_index: { parameters: ["pointer", "usize", "buffer"], result: "i32" },
  // ov_status_e ov_compiled_model_output_by_index(const ov_compiled_model_t* compiled, size_t index, port** port)
  ov_compiled_model_output_by_index: { parameters: ["pointer", "usize", "buffer"], result: "i32" },
  // ov_status_e ov_compiled_model_create_infer_request(const ov_compiled_model_t* compiled, ov_infer_request_t** made)
  ov_compiled_model_create_infer_request: {
    parameters: ["pointer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  // ov_status_e ov_port_get_any_name(const ov_output_const_port_t* port, char** name)
  ov_port_get_any_name: { parameters: ["pointer", "buffer"], result: "i32" },
  // ov_status_e ov_port_get_element_type(const ov_output_const_port_t* port, ov_element_type_e* type)
  ov_port_get_element_type: { parameters: ["pointer", "buffer"], result: "i32" },
  // ov_status_e ov_port_get_partial_shape(const ov_output_const_port_t* port, ov_partial_shape_t* shape)
  ov_port_get_partial_shape: { parameters: ["pointer", "buffer"], result: "i32" },
  // void ov_partial_shape_free(ov_partial_shape_t* shape)
  ov_partial_shape_free: { parameters: ["buffer"], result: "void" },
  // void ov_output_const_port_free(ov_output_const_port_t* port)
  ov_output_const_port_free: { parameters: ["pointer"], result: "void" },
  // ov_status_e ov_tensor_create(ov_element_type_e type, ov_shape_t shape, ov_tensor_t** tensor)
  ov_tensor_create: { parameters: ["i32", SHAPE, "buffer"], result: "i32" },
  // ov_status_e ov_tensor_create_from_host_ptr(ov_element_type_e type, ov_shape_t shape, void* data, ov_tensor_t** made)
  ov_tensor_create_from_host_ptr: {
    parameters: ["i32", SHAPE, "buffer", "buffer"],
    result: "i32",
  },
  // ov_status_e ov_tensor_get_shape(const ov_tensor_t* tensor, ov_shape_t* shape)
  ov_tensor_get_shape: { parameters: ["pointer", "buffer"], result: "i32" },
  // ov_status_e ov_shape_free(ov_shape_t* shape)
  ov_shape_free: { parameters: ["buffer"], result: "i32" },
  // ov_status_e ov_tensor_get_byte_size(const ov_tensor_t* tensor, size_t* size)
  ov_tensor_get_byte_size: { parameters: ["pointer", "buffer"], result: "i32" },
  // ov_status_e ov_tensor_data(const ov_tensor_t* tensor, void** data)
  ov_tensor_data: { parameters: ["pointer", "buffer"], result: "i32" },
  // void ov_tensor_free(ov_tensor_t* tensor)
  ov_tensor_free: { parameters: ["pointer"], result: "void" },
  // ov_status_e ov_infer_request_set_input_tensor_by_index(ov_infer_request_t* request, size_t index, ov_tensor_t* set)
  ov_infer_request_set_input_tensor_by_index: {
    parameters: ["pointer", "usize", "pointer"],
    result: "i32",
  },
  // ov_status_e ov_infer_request_set_output_tensor_by_index(ov_infer_request_t* request, size_t index, ov_tensor_t* set)
  ov_infer_request_set_output_tensor_by_index: {
    parameters: ["pointer", "usize", "pointer"],
    result: "i32",
  },
  // ov_status_e ov_infer_request_infer(ov_infer_request_t* request)
  ov_infer_request_infer: { parameters: ["pointer"], result: "i32", nonblocking: true },
  inferAddress: { name: "ov_infer_request_infer", type: "pointer" },
  // ov_status_e ov_infer_request_cancel(ov_infer_request_t* request)
  ov_infer_request_cancel: { parameters: ["pointer"], result: "i32" },
  // void ov_infer_request_free(ov_infer_request_t* request)
  ov_infer_request_free: { parameters: ["pointer"], result: "void" },
} as const satisfies Deno.ForeignLibraryInterface;

/** The opened library's functions. */
export type OvCalls = Deno.DynamicLibrary<typeof SYMBOLS>["symbols"];
