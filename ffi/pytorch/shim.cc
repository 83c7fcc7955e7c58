// TorchScript modules and AOTInductor packages behind a C interface; no C++ type crosses it. Built on demand against
// the libtorch that is found (shim_build.ts), 1.13 and newer. Every failure is written into the caller's buffer, since
// calls run on any thread.
#define AT_PER_OPERATOR_HEADERS  // Half the time to compile: declarations of the few operators that are used.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#if __has_include(<torch/csrc/inductor/aoti_package/model_package_loader.h>)
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#define NEREID_PACKAGES 1
#endif
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 10)
#include <ATen/DeviceAccelerator.h>
#define NEREID_CACHE_CLEANING 1
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

// Their headers bring in half of the compiler.
namespace torch {
namespace jit {
TORCH_API void setGraphExecutorOptimize(bool on);
TORCH_API void setTensorExprFuserEnabled(bool on);
TORCH_API std::atomic<bool>& getProfilingMode();
TORCH_API std::atomic<bool>& getExecutorMode();
}  // namespace jit
}  // namespace torch

namespace {

enum Kind : int64_t { kTensor = 0, kStrings = 1 };
enum Feature : int32_t { kPackages = 1, kCacheCleaning = 2 };
enum Format : int32_t { kScript = 0, kPackage = 1 };
enum Flag : int32_t {
  kInferenceMode = 1,
  kNoOptimizedExecution = 2,
  kInputsAreDict = 4,
  kNoCudnn = 8,
  kCleanCache = 16,
  // Pairs: whether it is told, and what.
  kJitExecutor = 32,
  kJitProfiling = 128,
  kTensorFuser = 512,
};
constexpr int32_t kOnCpu = -1;
constexpr int32_t kWhereItWasSaved = -2;

// One input: eight words, as torch_module.ts writes them.
struct Input {
  int64_t kind;
  int64_t dtype;
  int64_t rank;
  const int64_t* dims;
  void* bytes;
  int64_t size;
  const char* name;
  int64_t reserved;
};

// One output: seven words.
struct Output {
  int64_t kind;
  int64_t dtype;
  int64_t rank;
  const int64_t* dims;
  const void* bytes;
  int64_t size;
  const char* name;  // "" unless it is of a dictionary
};

struct Model {
  std::unique_ptr<torch::jit::Module> module;
#ifdef NEREID_PACKAGES
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> package;
#endif
  c10::Device inputDevice = c10::kCPU;
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

c10::List<std::string> readStrings(const Input& input) {
  c10::List<std::string> texts;
  const char* bytes = static_cast<const char*>(input.bytes);
  int64_t offset = 0;
  while (offset + 4 <= input.size) {
    uint32_t length;
    std::memcpy(&length, bytes + offset, 4);
    offset += 4;
    if (offset + static_cast<int64_t>(length) > input.size) break;
    texts.push_back(std::string(bytes + offset, length));
    offset += length;
  }
  return texts;
}

at::Tensor toTensor(const Input& input, c10::Device device) {
  auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(input.dtype));
  auto tensor = at::from_blob(input.bytes, at::IntArrayRef(input.dims, input.rank), options);
  return device.is_cpu() ? tensor : tensor.to(device);
}

c10::IValue toValue(const Input& input, c10::Device device) {
  if (input.kind == kStrings) return readStrings(input);
  return toTensor(input, device);
}

void add(Result& result, const c10::IValue& value, const std::string& name) {
  auto held = std::make_unique<Held>();
  held->name = name;
  Output output{};
  if (value.isTensor()) {
    held->tensor = value.toTensor().detach().to(at::kCPU).resolve_neg().contiguous();
    const auto& tensor = held->tensor;
    output = {kTensor, static_cast<int64_t>(tensor.scalar_type()), tensor.dim(), tensor.sizes().data(),
              tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()), nullptr};
  } else if (value.isString() ||
             (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::StringType)) {
    auto append = [&](const std::string& text) {
      uint32_t length = static_cast<uint32_t>(text.size());
      held->bytes.append(reinterpret_cast<const char*>(&length), 4).append(text);
      held->count++;
    };
    if (value.isString()) append(value.toStringRef());
    else for (const auto& each : value.toListRef()) append(each.toStringRef());
    output = {kStrings, 0, 1, &held->count, held->bytes.data(), static_cast<int64_t>(held->bytes.size()), nullptr};
  } else {
    auto place = name.empty() ? "at index " + std::to_string(result.outputs.size()) : "'" + name + "'";
    throw std::runtime_error("output " + place + " must be of type Tensor or List[str], received " +
                             value.type()->annotation_str());
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
    for (const auto& each : value.toGenericDict()) {
      if (!each.key().isString()) throw std::runtime_error("keys of an output dictionary must be of type str");
      add(result, each.value(), each.key().toStringRef());
    }
  } else {
    add(result, value, "");
  }
}

std::string describe(const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  if (!method) throw std::runtime_error("the module has no method 'forward'");
  const auto& schema = method->function().getSchema();
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

c10::IValue runScript(Model& model, int64_t count, const Input* inputs, int32_t flags) {
  if (flags & kInputsAreDict) {
    c10::Dict<std::string, at::Tensor> named;
    for (int64_t i = 0; i < count; i++) named.insert(inputs[i].name, toTensor(inputs[i], model.inputDevice));
    return model.module->forward({named});
  }
  torch::jit::Kwargs arguments;
  for (int64_t i = 0; i < count; i++) arguments.emplace(inputs[i].name, toValue(inputs[i], model.inputDevice));
  return model.module->forward({}, arguments);
}

void run(Result& result, Model& model, int64_t count, const Input* inputs, int32_t flags) {
#ifdef NEREID_PACKAGES
  if (model.package) {
    std::vector<at::Tensor> tensors;
    for (int64_t i = 0; i < count; i++) tensors.push_back(toTensor(inputs[i], model.inputDevice));
    for (const auto& each : model.package->run(tensors)) add(result, each, "");
    return;
  }
#endif
  flatten(result, runScript(model, count, inputs, flags));
}

void setSwitches(int32_t flags) {
  auto isTold = [flags](int32_t flag) { return (flags & flag) != 0; };
  torch::jit::setGraphExecutorOptimize(!isTold(kNoOptimizedExecution));
  at::globalContext().setUserEnabledCuDNN(!isTold(kNoCudnn));
  if (isTold(kJitExecutor)) torch::jit::getExecutorMode() = isTold(kJitExecutor * 2);
  if (isTold(kJitProfiling)) torch::jit::getProfilingMode() = isTold(kJitProfiling * 2);
  if (isTold(kTensorFuser)) torch::jit::setTensorExprFuserEnabled(isTold(kTensorFuser * 2));
}

#ifdef NEREID_PACKAGES
using Loader = torch::inductor::AOTIModelPackageLoader;

// The constructor grew with the versions.
template <typename Each>
std::unique_ptr<Each> openPackage(const std::string& path, int32_t runners, c10::DeviceIndex device) {
  const std::string name = "model";
  if constexpr (std::is_constructible_v<Each, const std::string&, const std::string&, bool, size_t, c10::DeviceIndex>) {
    return std::make_unique<Each>(path, name, false, static_cast<size_t>(runners), device);
  } else if constexpr (std::is_constructible_v<Each, const std::string&, const std::string&, bool, size_t>) {
    return std::make_unique<Each>(path, name, false, static_cast<size_t>(runners));
  } else {
    return std::make_unique<Each>(path, name);
  }
}
#endif

void loadPackage(Model& model, const char* path, int32_t device, int32_t runners) {
#ifdef NEREID_PACKAGES
  // Code in packages does not look at what it gets unless it is told to, and reads behind the end of small tensors.
  setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 1);
  model.package = openPackage<Loader>(path, runners, static_cast<c10::DeviceIndex>(device < 0 ? -1 : device));
  for (const auto& spec : model.package->get_call_spec()) model.signature += spec + "\n";
  for (const auto& entry : model.package->get_metadata()) {
    if (entry.first == "AOTI_DEVICE_KEY") model.signature += entry.second;
  }
#else
  throw std::runtime_error("this libtorch cannot load AOTInductor packages, 2.6 and newer can");
#endif
}

void loadScript(Model& model, const char* path, int32_t device) {
  model.module = std::make_unique<torch::jit::Module>(
      device == kWhereItWasSaved ? torch::jit::load(path) : torch::jit::load(path, model.inputDevice));
  model.module->eval();
  model.signature = describe(*model.module);
}

template <typename Work>
bool attempt(char* error, size_t size, Work work) {
  try {
    work();
    return true;
  } catch (const std::exception& e) {
    tell(error, size, e.what());
  } catch (...) {
    tell(error, size, "unknown failure");
  }
  return false;
}

}  // namespace

extern "C" {

const char* nereid_torch_version() { return TORCH_VERSION; }

int32_t nereid_torch_features() {
  int32_t features = 0;
#ifdef NEREID_PACKAGES
  features |= kPackages;
#endif
#ifdef NEREID_CACHE_CLEANING
  features |= kCacheCleaning;
#endif
  return features;
}

// Devices that libtorch can use now; -1 when it is built without CUDA.
int32_t nereid_torch_cuda_count() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return -1;
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount();
}

// 0 = as it is. Of the whole process.
int32_t nereid_torch_threads(int32_t intra, int32_t inter, char* error, size_t error_size) {
  return attempt(error, error_size, [&] {
    if (intra > 0) at::set_num_threads(intra);
    if (inter > 0) at::set_num_interop_threads(inter);
  }) ? 0 : 1;
}

// device: index of a CUDA device, or kOnCpu, or kWhereItWasSaved.
void* nereid_torch_load(const char* path, int32_t format, int32_t device, int32_t runners, char* error,
                        size_t error_size) {
  auto model = std::make_unique<Model>();
  bool isLoaded = attempt(error, error_size, [&] {
    if (device >= 0) model->inputDevice = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (format == kPackage) loadPackage(*model, path, device, runners);
    else loadScript(*model, path, device);
  });
  return isLoaded ? model.release() : nullptr;
}

const char* nereid_torch_signature(void* model) { return static_cast<Model*>(model)->signature.c_str(); }

void nereid_torch_free(void* model) { delete static_cast<Model*>(model); }

void* nereid_torch_forward(void* model, int64_t count, const Input* inputs, int32_t flags, char* error,
                           size_t error_size) {
  auto result = std::make_unique<Result>();
  bool isDone = attempt(error, error_size, [&] {
    setSwitches(flags);
    at::NoGradGuard noGrad;
    c10::InferenceMode inferenceMode((flags & kInferenceMode) != 0);
    run(*result, *static_cast<Model*>(model), count, inputs, flags);
#ifdef NEREID_CACHE_CLEANING
    if ((flags & kCleanCache) && !static_cast<Model*>(model)->inputDevice.is_cpu()) at::accelerator::emptyCache();
#endif
  });
  return isDone ? result.release() : nullptr;
}

int64_t nereid_torch_output_count(void* result) {
  return static_cast<int64_t>(static_cast<Result*>(result)->outputs.size());
}

const Output* nereid_torch_outputs(void* result) { return static_cast<Result*>(result)->outputs.data(); }

void nereid_torch_result_free(void* result) { delete static_cast<Result*>(result); }
}
