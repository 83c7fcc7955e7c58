export { PythonBackend, type PythonBackendOptions } from "./python_backend.ts";
