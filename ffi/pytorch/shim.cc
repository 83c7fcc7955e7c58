// TorchScript behind a C interface; no C++ type crosses it. Built on demand against the libtorch that is found
// (shim_build.ts). Every failure is written into the caller's buffer, since calls run on any thread.
#include <ATen/Parallel.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/script.h>
#include <torch/version.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

enum Kind : int64_t { kTensor = 0, kStrings = 1 };
enum Flag : int32_t { kInferenceMode = 1, kNoOptimizedExecution = 2, kInputsAreDict = 4 };

// One input: eight words, as torch_module.ts writes them.
struct Input {
  int64_t kind;
  int64_t dtype;
  int64_t rank;
  const int64_t* dims;
  void* data;
  int64_t size;  // bytes
  const char* name;
  int64_t count;  // elements, of strings
};

// One output: seven words.
struct Output {
  int64_t kind;
  int64_t dtype;
  int64_t rank;
  const int64_t* dims;
  const void* data;
  int64_t size;
  const char* name;  // "" unless it is of a dictionary
};

struct Model {
  torch::jit::Module module;
  std::string signature;
};

// What an output points into.
struct Held {
  at::Tensor tensor;
  std::string bytes;
  std::string name;
  int64_t count = 0;
};

struct Result {
  std::vector<std::unique_ptr<Held>> held;
  std::vector<Output> outputs;
};

void tell(char* error, size_t size, const char* text) {
  if (size > 0) std::snprintf(error, size, "%s", text);
}

std::vector<std::string> readStrings(const Input& input) {
  std::vector<std::string> texts;
  const char* data = static_cast<const char*>(input.data);
  int64_t offset = 0;
  while (offset + 4 <= input.size) {
    uint32_t length;
    std::memcpy(&length, data + offset, 4);
    offset += 4;
    if (offset + static_cast<int64_t>(length) > input.size) break;
    texts.emplace_back(data + offset, length);
    offset += length;
  }
  return texts;
}

c10::IValue toValue(const Input& input) {
  if (input.kind == kStrings) {
    c10::List<std::string> texts;
    for (auto& text : readStrings(input)) texts.push_back(text);
    return texts;
  }
  auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(input.dtype));
  return torch::from_blob(input.data, at::IntArrayRef(input.dims, input.rank), options);
}

void add(Result& result, const c10::IValue& value, const std::string& name) {
  auto held = std::make_unique<Held>();
  held->name = name;
  Output output{};
  if (value.isTensor()) {
    held->tensor = value.toTensor().detach().to(at::kCPU).contiguous();
    const auto& tensor = held->tensor;
    output = {kTensor, static_cast<int64_t>(tensor.scalar_type()), tensor.dim(), tensor.sizes().data(),
              tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()), nullptr};
  } else if (value.isString() || (value.isList() && value.toListRef().empty()) ||
             (value.isList() && value.toListRef()[0].isString())) {
    auto append = [&](const std::string& text) {
      uint32_t length = static_cast<uint32_t>(text.size());
      held->bytes.append(reinterpret_cast<const char*>(&length), 4).append(text);
      held->count++;
    };
    if (value.isString()) append(value.toStringRef());
    else for (const auto& each : value.toListRef()) append(each.toStringRef());
    output = {kStrings, 0, 1, &held->count, held->bytes.data(), static_cast<int64_t>(held->bytes.size()), nullptr};
  } else {
    throw std::runtime_error("output " + (name.empty() ? std::to_string(result.outputs.size()) : "'" + name + "'") +
                             " is " + value.tagKind() + "; expected Tensor, str or List[str]");
  }
  output.name = held->name.c_str();
  result.held.push_back(std::move(held));
  result.outputs.push_back(output);
}

void flatten(Result& result, const c10::IValue& value) {
  if (value.isTuple()) {
    for (const auto& each : value.toTupleRef().elements()) add(result, each, "");
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) add(result, each, "");
  } else if (value.isGenericDict()) {
    for (const auto& each : value.toGenericDict()) add(result, each.value(), each.key().toStringRef());
  } else {
    add(result, value, "");
  }
}

std::string describe(torch::jit::Module& module) {
  const auto& schema = module.get_method("forward").function().getSchema();
  std::string text;
  for (size_t index = 1; index < schema.arguments().size(); index++) {
    const auto& argument = schema.arguments()[index];
    text += argument.name() + "\t" + argument.type()->annotation_str() + "\t" +
            (argument.default_value().has_value() ? "optional" : "") + "\n";
  }
  text += "\t";
  for (const auto& value : schema.returns()) text += value.type()->annotation_str();
  return text;
}

c10::IValue run(Model& model, int64_t count, const Input* inputs, int32_t flags) {
  std::vector<c10::IValue> arguments;
  if (flags & kInputsAreDict) {
    c10::Dict<std::string, at::Tensor> named;
    for (int64_t i = 0; i < count; i++) named.insert(inputs[i].name, toValue(inputs[i]).toTensor());
    arguments.emplace_back(named);
  } else {
    for (int64_t i = 0; i < count; i++) arguments.push_back(toValue(inputs[i]));
  }
  return model.module.forward(std::move(arguments));
}

}  // namespace

extern "C" {

const char* nereid_torch_version() { return TORCH_VERSION; }

// -1 = as it is. Of the whole process.
int32_t nereid_torch_threads(int32_t intra, int32_t inter, char* error, size_t error_size) {
  try {
    if (intra > 0) at::set_num_threads(intra);
    if (inter > 0) at::set_num_interop_threads(inter);
    return 0;
  } catch (const std::exception& e) {
    tell(error, error_size, e.what());
    return 1;
  }
}

void nereid_torch_jit(int32_t executor, int32_t profiling, int32_t fuser) {
  if (executor >= 0) torch::jit::getExecutorMode() = executor != 0;
  if (profiling >= 0) torch::jit::getProfilingMode() = profiling != 0;
  if (fuser >= 0) torch::jit::setTensorExprFuserEnabled(fuser != 0);
}

void* nereid_torch_load(const char* path, char* error, size_t error_size) {
  try {
    auto model = std::make_unique<Model>();
    model->module = torch::jit::load(path, at::kCPU);
    model->module.eval();
    model->signature = describe(model->module);
    return model.release();
  } catch (const std::exception& e) {
    tell(error, error_size, e.what());
    return nullptr;
  }
}

const char* nereid_torch_signature(void* model) { return static_cast<Model*>(model)->signature.c_str(); }

void nereid_torch_free(void* model) { delete static_cast<Model*>(model); }

void* nereid_torch_forward(void* model, int64_t count, const Input* inputs, int32_t flags, char* error,
                           size_t error_size) {
  try {
    auto result = std::make_unique<Result>();
    torch::jit::setGraphExecutorOptimize((flags & kNoOptimizedExecution) == 0);
    if (flags & kInferenceMode) {
      c10::InferenceMode guard;
      flatten(*result, run(*static_cast<Model*>(model), count, inputs, flags));
    } else {
      at::NoGradGuard guard;
      flatten(*result, run(*static_cast<Model*>(model), count, inputs, flags));
    }
    return result.release();
  } catch (const std::exception& e) {
    tell(error, error_size, e.what());
    return nullptr;
  }
}

int64_t nereid_torch_output_count(void* result) { return static_cast<int64_t>(static_cast<Result*>(result)->outputs.size()); }

const Output* nereid_torch_outputs(void* result) { return static_cast<Result*>(result)->outputs.data(); }

void nereid_torch_result_free(void* result) { delete static_cast<Result*>(result); }
}
