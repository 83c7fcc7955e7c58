import cPythonBackendUtils from "./runtime/c_python_backend_utils.py" with { type: "text" };
import nereidCalls from "./runtime/nereid_calls.py" with { type: "text" };
import nereidDatatypes from "./runtime/nereid_datatypes.py" with { type: "text" };
import nereidDlpack from "./runtime/nereid_dlpack.py" with { type: "text" };
import nereidErrors from "./runtime/nereid_errors.py" with { type: "text" };
import nereidLink from "./runtime/nereid_link.py" with { type: "text" };
import nereidMemory from "./runtime/nereid_memory.py" with { type: "text" };
import nereidModelConfig from "./runtime/nereid_model_config.py" with { type: "text" };
import nereidParameters from "./runtime/nereid_parameters.py" with { type: "text" };
import nereidRequest from "./runtime/nereid_request.py" with { type: "text" };
import nereidResponse from "./runtime/nereid_response.py" with { type: "text" };
import nereidRunner from "./runtime/nereid_runner.py" with { type: "text" };
import nereidServices from "./runtime/nereid_services.py" with { type: "text" };
import nereidSession from "./runtime/nereid_session.py" with { type: "text" };
import nereidStub from "./runtime/nereid_stub.py" with { type: "text" };
import nereidTensor from "./runtime/nereid_tensor.py" with { type: "text" };
import nereidWire from "./runtime/nereid_wire.py" with { type: "text" };
import tritonPythonBackendUtils from "./runtime/triton_python_backend_utils.py" with {
  type: "text",
};

/** The files that Python processes run, by name. */
export const RUNTIME_FILES: Readonly<Record<string, string>> = {
  "c_python_backend_utils.py": cPythonBackendUtils,
  "nereid_calls.py": nereidCalls,
  "nereid_datatypes.py": nereidDatatypes,
  "nereid_dlpack.py": nereidDlpack,
  "nereid_errors.py": nereidErrors,
  "nereid_link.py": nereidLink,
  "nereid_memory.py": nereidMemory,
  "nereid_model_config.py": nereidModelConfig,
  "nereid_parameters.py": nereidParameters,
  "nereid_request.py": nereidRequest,
  "nereid_response.py": nereidResponse,
  "nereid_runner.py": nereidRunner,
  "nereid_services.py": nereidServices,
  "nereid_session.py": nereidSession,
  "nereid_stub.py": nereidStub,
  "nereid_tensor.py": nereidTensor,
  "nereid_wire.py": nereidWire,
  "triton_python_backend_utils.py": tritonPythonBackendUtils,
};
