// A library with the ABI of libnvinfer: objects {vptr, mImpl} and their methods at the slots of one major version,
// MAJOR = 8, 9, 10 or 11. It computes small plans in a text format of our own (plan.ts), checks order and arguments of
// every call, counts what lives, and fails on demand. A slot that should not be called ends the process and says which.
//
// STAND_IN_VERSION = another version number than its own, STAND_IN_CRASH = deserialize | enqueue | runtime: where it
// crashes, STAND_IN_BREAK = slot: a method is elsewhere, STAND_IN_FAIL = calls that fail.
#include "cuda_stand_in.h"
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#ifndef MAJOR
#error "MAJOR is not defined"
#endif
#if MAJOR >= 10
using Dim = int64_t;
#else
using Dim = int32_t;
#endif

namespace {
struct Dims { int32_t count; Dim d[8]; };
static_assert(sizeof(Dims) == (MAJOR >= 10 ? 72 : 36), "size of Dims");
using Shape = std::vector<int64_t>;
struct InterfaceInfo { const char *kind; int32_t major, minor; };

constexpr int at(int eight, int ten, int eleven) { return MAJOR >= 11 ? eleven : MAJOR >= 10 ? ten : eight; }
constexpr int VERSION = MAJOR == 8 ? 8601 : MAJOR == 9 ? 9300 : MAJOR == 10 ? 101300 : 110100;

void **methods_of(void *object) { return *static_cast<void ***>(object); }

// Calls of the interfaces that the application implements.
void log_line(void *logger, int severity, const std::string &text) {
  using Log = void (*)(void *, int32_t, const char *);
  reinterpret_cast<Log>(methods_of(logger)[MAJOR >= 11 ? 4 : 0])(logger, severity, text.c_str());
}
bool is_interface(void *object, const char *kind) {
  using Info = InterfaceInfo (*)(void *);
  using Language = int32_t (*)(void *);
  auto info = reinterpret_cast<Info>(methods_of(object)[1])(object);
  return reinterpret_cast<Language>(methods_of(object)[0])(object) == 0 && strcmp(info.kind, kind) == 0 && info.major == 1 && info.minor == 0;
}
void *reallocate_output(void *allocator, const char *name, uint64_t size, void *stream) {
  using Plain = void *(*)(void *, const char *, void *, uint64_t, uint64_t);
  using Async = void *(*)(void *, const char *, void *, uint64_t, uint64_t, void *);
  auto **methods = methods_of(allocator);
  if (MAJOR >= 10) return reinterpret_cast<Async>(methods[5])(allocator, name, nullptr, size, 256, stream);
  return reinterpret_cast<Plain>(methods[1])(allocator, name, nullptr, size, 256);
}
void notify_shape(void *allocator, const char *name, const Dims &dims) {
  using Notify = void (*)(void *, const char *, const Dims *);
  reinterpret_cast<Notify>(methods_of(allocator)[MAJOR >= 10 ? 6 : 2])(allocator, name, &dims);
}

struct Profile { Shape min, opt, max; };
struct Tensor {
  std::string name;
  bool is_input = false, is_shape = false, is_dynamic_size = false;
  int type = 0, format = 0, vector_dim = -1, components = 1;
  Shape dims;
  std::map<int, Profile> profiles;
};
struct Op { std::string kind; std::vector<std::string> names; };
struct Plan { int version = 0, profiles = 1; std::string name = "unnamed", capability; std::vector<Tensor> tensors; std::vector<Op> ops; };

constexpr int SIZES[] = {4, 2, 1, 4, 1, 1, 1, 2, 8, 1, 1, 1};
const char *const TYPES[] = {"FLOAT", "HALF", "INT8", "INT32", "BOOL", "UINT8", "FP8", "BF16", "INT64", "INT4", "FP4", "E8M0"};

Shape parse_shape(const std::string &text) {
  Shape shape;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');)
    if (part != "scalar") shape.push_back(atoll(part.c_str()));
  return shape;
}
Tensor *find(Plan &plan, const std::string &name) {
  for (auto &tensor : plan.tensors) if (tensor.name == name) return &tensor;
  return nullptr;
}
// The fault of the plan; empty when it is whole.
std::string parse_plan(const std::string &text, Plan &plan) {
  if (text.compare(0, 5, "ftrt\n") != 0) return "Magic tag does not match";
  std::stringstream lines(text.substr(5));
  bool is_whole = false;
  for (std::string line; std::getline(lines, line);) {
    std::stringstream words(line);
    std::string word, name, type, dims, option;
    words >> word;
    if (word == "end") is_whole = true;
    else if (word == "version") words >> plan.version;
    else if (word == "capability") words >> plan.capability;
    else if (word == "name") words >> plan.name;
    else if (word == "profiles") words >> plan.profiles;
    else if (word == "input" || word == "output") {
      Tensor tensor;
      words >> tensor.name >> type >> dims;
      tensor.is_input = word == "input";
      tensor.dims = parse_shape(dims);
      for (int i = 0; i < 12; i++) if (type == TYPES[i]) tensor.type = i;
      while (words >> option) {
        if (option == "shape") tensor.is_shape = true;
        else if (option == "vector") words >> tensor.format >> tensor.vector_dim >> tensor.components;
      }
      plan.tensors.push_back(tensor);
    } else if (word == "profile") {
      int number;
      std::string min, opt, max;
      words >> number >> name >> min >> opt >> max;
      if (Tensor *tensor = find(plan, name)) tensor->profiles[number] = {parse_shape(min), parse_shape(opt), parse_shape(max)};
    } else if (word == "op") {
      Op op;
      words >> op.kind;
      while (words >> name) op.names.push_back(name);
      if (op.kind == "nonzero") find(plan, op.names[1])->is_dynamic_size = true;
      plan.ops.push_back(op);
    }
  }
  return is_whole ? "" : "Serialization assertion plan->header.size == blobSize failed";
}

struct Public { void **methods; void *implementation; };
struct Runtime { void **methods; Public *pub; void *logger; int engines = 0; };
struct Engine { void **methods; Public *pub; Runtime *runtime; Plan plan; int device; int contexts = 0; };
struct Context {
  void **methods; Public *pub; Engine *engine; std::string name; int profile = 0;
  std::map<std::string, Shape> shapes;
  std::map<std::string, void *> addresses, allocators;
};
int live[3];

// A real fault: the process's own handler lets a raised signal pass.
[[noreturn]] void crash() {
  *static_cast<volatile int *>(nullptr) = 1;
  abort();
}
[[noreturn]] void wrong_slot(int slot) {
  fprintf(stderr, "stand-in: slot %d is called, which no application should call\n", slot);
  crash();
}
template <int Slot> void trap() { wrong_slot(Slot); }
template <int... Slots> std::array<void *, sizeof...(Slots)> traps(std::integer_sequence<int, Slots...>) {
  return {reinterpret_cast<void *>(&trap<Slots>)...};
}
auto &runtime_methods = *new std::array<void *, 64>(traps(std::make_integer_sequence<int, 64>()));
auto &engine_methods = *new std::array<void *, 64>(runtime_methods), &context_methods = *new std::array<void *, 64>(runtime_methods);
auto &runtime_deletes = *new std::array<void *, 2>, &engine_deletes = *new std::array<void *, 2>, &context_deletes = *new std::array<void *, 2>;
template <class Function> void *code(Function *function) { return reinterpret_cast<void *>(function); }

void error(Engine *engine, const std::string &text) { log_line(engine->runtime->logger, 1, text); }
void misuse(Engine *engine, const std::string &text) {
  error(engine, text);
  stand_in_fault(text.c_str());
}
Dims to_dims(const Shape &shape) {
  Dims dims{static_cast<int32_t>(shape.size()), {}};
  for (size_t i = 0; i < shape.size() && i < 8; i++) dims.d[i] = static_cast<Dim>(shape[i]);
  return dims;
}
Dims no_dims() { return {-1, {}}; }
std::string text_of(const Shape &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}
size_t byte_size(const Tensor &tensor, Shape shape) {
  size_t size = SIZES[tensor.type];
  for (size_t i = 0; i < shape.size(); i++) {
    int64_t dim = shape[i];
    if (static_cast<int>(i) == tensor.vector_dim) dim = (dim + tensor.components - 1) / tensor.components * tensor.components;
    size *= static_cast<size_t>(dim);
  }
  return size;
}
int64_t read_integer(const void *data, int type, size_t index) {
  return type == 8 ? static_cast<const int64_t *>(data)[index] : static_cast<const int32_t *>(data)[index];
}

// Shape of a tensor in a context as far as it is known; -1 = not yet.
Shape shape_of(Context *context, const std::string &name) {
  Plan &plan = context->engine->plan;
  Tensor *tensor = find(plan, name);
  if (tensor->is_input) {
    auto found = context->shapes.find(name);
    return found == context->shapes.end() ? tensor->dims : found->second;
  }
  for (auto &op : plan.ops) {
    if (op.names.empty() || op.names.back() != name) continue;
    if (op.kind == "nonzero") return {static_cast<int64_t>(shape_of(context, op.names[0]).size()), -1};
    if (op.kind == "shapeof") return {static_cast<int64_t>(shape_of(context, op.names[0]).size())};
    if (op.kind == "fill") {
      Tensor *source = find(plan, op.names[0]);
      Shape count = shape_of(context, op.names[0]);
      auto values = context->addresses.find(op.names[0]);
      Shape shape(static_cast<size_t>(count[0]), -1);
      if (values != context->addresses.end())
        for (size_t i = 0; i < shape.size(); i++) shape[i] = read_integer(values->second, source->type, i);
      return shape;
    }
    return shape_of(context, op.names[0]);
  }
  return tensor->dims;
}
bool is_complete(const Shape &shape) {
  for (auto dim : shape) if (dim < 0) return false;
  return true;
}

// --- IRuntime
void *runtime_get_pimpl(Runtime *self) { return self->pub; }
void *runtime_get_logger(Runtime *self) { return self->logger; }
void runtime_set_dla(Runtime *self, int32_t core) { log_line(self->logger, 3, "DLA core " + std::to_string(core)); }
void runtime_allow_host_code(Runtime *self, bool allow) { log_line(self->logger, 3, allow ? "host code allowed" : "host code forbidden"); }
Public *runtime_deserialize(Runtime *self, const char *data, size_t size, void *factory) {
  if (const char *place = getenv("STAND_IN_CRASH"); place != nullptr && strcmp(place, "deserialize") == 0) crash();
  if (MAJOR < 10 && factory != nullptr) stand_in_fault("deserializeCudaEngine gets a plugin factory");
  log_line(self->logger, 3, "Loaded engine size: " + std::to_string(size) + " bytes");
  Plan plan;
  std::string fault = parse_plan(std::string(data, size), plan);
  const char *capability = getenv("STAND_IN_CAPABILITY");
  if (fault.empty() && plan.version != MAJOR) fault = "The engine plan file is not compatible with this version of TensorRT, expecting library version " + std::to_string(MAJOR) + " got " + std::to_string(plan.version) + ", please rebuild.";
  if (fault.empty() && !plan.capability.empty() && plan.capability != (capability ? capability : "8.6")) fault = "The engine plan file is generated on an incompatible device, expecting compute " + std::string(capability ? capability : "8.6") + " got compute " + plan.capability + ", please rebuild.";
  if (fault.empty() && stand_in_fails("deserialize")) fault = "out of memory";
  if (!fault.empty()) {
    // As the real library, from another thread.
    std::thread([&] { log_line(self->logger, 1, "IRuntime::deserializeCudaEngine: Error Code 1: " + fault); }).join();
    return nullptr;
  }
  auto *engine = new Engine{engine_methods.data(), nullptr, self, plan, stand_in_current_device()};
  engine->pub = new Public{engine_deletes.data(), engine};
  self->engines++;
  live[1]++;
  return engine->pub;
}
void runtime_delete(Public *pub) {
  auto *self = static_cast<Runtime *>(pub->implementation);
  if (self->engines > 0) stand_in_fault("a runtime is deleted before its engines");
  live[0]--;
  delete self;
  delete pub;
}

// --- ICudaEngine
Tensor *tensor_of(Engine *self, const char *name) {
  Tensor *tensor = find(self->plan, name);
  if (tensor == nullptr) misuse(self, std::string("there is no tensor ") + name);
  return tensor;
}
void *engine_get_pimpl(Engine *self) { return self->pub; }
const char *engine_get_name(Engine *self) { return self->plan.name.c_str(); }
int32_t engine_get_profiles(Engine *self) { return self->plan.profiles; }
Dims engine_get_shape(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t ? to_dims(t->dims) : no_dims(); }
int32_t engine_get_type(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t ? t->type : -1; }
int32_t engine_get_location(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t && t->is_shape ? 1 : 0; }
bool engine_is_shape(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t && t->is_shape; }
int32_t engine_get_mode(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t == nullptr ? 0 : t->is_input ? 1 : 2; }
int32_t engine_get_bytes(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t && t->vector_dim >= 0 ? SIZES[t->type] : -1; }
int32_t engine_get_components(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t && t->vector_dim >= 0 ? t->components : -1; }
int32_t engine_get_format(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t ? t->format : -1; }
const char *engine_get_format_text(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t && t->format == 0 ? "Row major linear (kLINEAR)" : "Vectorized"; }
int32_t engine_get_vector_dim(Engine *self, const char *name) { Tensor *t = tensor_of(self, name); return t ? t->vector_dim : -1; }
Dims engine_get_profile_shape(Engine *self, const char *name, int32_t profile, int32_t selector) {
  Tensor *t = tensor_of(self, name);
  if (t == nullptr || profile < 0 || profile >= self->plan.profiles || selector < 0 || selector > 2) return no_dims();
  auto found = t->profiles.find(profile);
  if (found == t->profiles.end()) return to_dims(t->dims);
  const Profile &p = found->second;
  return to_dims(selector == 0 ? p.min : selector == 1 ? p.opt : p.max);
}
int32_t engine_get_count(Engine *self) { return static_cast<int32_t>(self->plan.tensors.size()); }
const char *engine_get_tensor_name(Engine *self, int32_t index) {
  return index < 0 || index >= engine_get_count(self) ? nullptr : self->plan.tensors[static_cast<size_t>(index)].name.c_str();
}
Public *engine_create_context(Engine *self, int32_t strategy) {
  if (MAJOR >= 10 && (strategy < 0 || strategy > 2)) misuse(self, "unknown allocation strategy");
  if (stand_in_current_device() != self->device) return misuse(self, "a context is made while another device is current"), nullptr;
  if (stand_in_fails("context")) return error(self, "IExecutionContext: out of memory"), nullptr;
  if (MAJOR < 10 && self->contexts >= self->plan.profiles) misuse(self, "two contexts of an engine share a profile");
  auto *context = new Context{context_methods.data(), nullptr, self, "", 0, {}, {}, {}};
  context->pub = new Public{context_deletes.data(), context};
  self->contexts++;
  live[2]++;
  return context->pub;
}
void engine_delete(Public *pub) {
  auto *self = static_cast<Engine *>(pub->implementation);
  if (self->contexts > 0) stand_in_fault("an engine is deleted before its contexts");
  if (stand_in_current_device() != self->device) stand_in_fault("an engine is deleted while another device is current");
  self->runtime->engines--;
  live[1]--;
  delete self;
  delete pub;
}

// --- IExecutionContext
void *context_get_pimpl(Context *self) { return self->pub; }
Public *context_get_engine(Context *self) { return self->engine->pub; }
void context_set_name(Context *self, const char *name) { self->name = name; }
const char *context_get_name(Context *self) { return self->name.c_str(); }
bool context_set_profile(Context *self, int32_t profile, void *stream) {
  if (profile < 0 || profile >= self->engine->plan.profiles) return misuse(self->engine, "there is no such profile"), false;
  if (!stand_in_flush(stream)) return misuse(self->engine, "a profile is chosen on a stream that is none"), false;
  self->profile = profile;
  self->shapes.clear();
  return true;
}
bool context_set_input_shape(Context *self, const char *name, const Dims *dims) {
  Tensor *tensor = tensor_of(self->engine, name);
  if (tensor == nullptr || !tensor->is_input) return misuse(self->engine, "a shape is set for what is no input"), false;
  Shape shape(dims->d, dims->d + dims->count);
  bool fits = shape.size() == tensor->dims.size();
  auto profile = tensor->profiles.find(self->profile);
  for (size_t i = 0; fits && i < shape.size(); i++) {
    if (tensor->dims[i] >= 0) fits = shape[i] == tensor->dims[i];
    else if (profile != tensor->profiles.end()) fits = shape[i] >= profile->second.min[i] && shape[i] <= profile->second.max[i];
  }
  if (!fits) return error(self->engine, "IExecutionContext::setInputShape: Error Code 3: shape " + text_of(shape) + " of " + name + " does not satisfy profile " + std::to_string(self->profile)), false;
  self->shapes[name] = shape;
  return true;
}
Dims context_get_shape(Context *self, const char *name) {
  return tensor_of(self->engine, name) == nullptr ? no_dims() : to_dims(shape_of(self, name));
}
bool context_set_address(Context *self, const char *name, void *address) {
  Tensor *tensor = tensor_of(self->engine, name);
  if (tensor == nullptr) return false;
  if (!tensor->is_shape && reinterpret_cast<uintptr_t>(address) % 256 != 0) return misuse(self->engine, std::string("the address of ") + name + " is not aligned to 256 bytes"), false;
  self->addresses[name] = address;
  return true;
}
bool context_set_input_address(Context *self, const char *name, void *address) {
  Tensor *tensor = tensor_of(self->engine, name);
  if (tensor == nullptr || !tensor->is_input) return misuse(self->engine, "an address is set for what is no input"), false;
  return context_set_address(self, name, address);
}
int32_t context_infer_shapes(Context *self, int32_t, const char **) {
  int32_t missing = 0;
  for (auto &tensor : self->engine->plan.tensors) {
    if (!tensor.is_input) continue;
    if (!is_complete(shape_of(self, tensor.name)) || (tensor.is_shape && !self->addresses.count(tensor.name))) missing++;
  }
  return missing;
}
bool context_set_allocator(Context *self, const char *name, void *allocator) {
  Tensor *tensor = tensor_of(self->engine, name);
  if (tensor == nullptr || tensor->is_input) return misuse(self->engine, "an allocator is set for what is no output"), false;
  if (MAJOR >= 10 && allocator != nullptr && !is_interface(allocator, "IOutputAllocator")) return misuse(self->engine, "the allocator is no IOutputAllocator"), false;
  self->allocators[name] = allocator;
  return true;
}
int64_t context_get_max_size(Context *self, const char *name) {
  Tensor *tensor = tensor_of(self->engine, name);
  if (tensor == nullptr) return -1;
  for (auto &op : self->engine->plan.ops) {
    if (op.kind != "nonzero" || op.names[1] != name) continue;
    Shape source = shape_of(self, op.names[0]);
    int64_t count = static_cast<int64_t>(source.size()) * SIZES[tensor->type];
    for (auto dim : source) count *= dim;
    // Half of what can be needed, so that applications are seen to ask again.
    return getenv("STAND_IN_SMALL_BOUND") ? count / 2 : count;
  }
  return static_cast<int64_t>(byte_size(*tensor, shape_of(self, name)));
}

struct Bound { Tensor tensor; Shape shape; char *data; };
void put_integer(Bound &target, size_t index, int64_t value) {
  if (target.tensor.type == 8) reinterpret_cast<int64_t *>(target.data)[index] = value;
  else reinterpret_cast<int32_t *>(target.data)[index] = static_cast<int32_t>(value);
}
void compute(const Op &op, std::vector<Bound> bound) {
  Bound &out = bound.back();
  size_t size = byte_size(out.tensor, out.shape);
  if (op.kind == "identity") memcpy(out.data, bound[0].data, size);
  else if (op.kind == "fill") for (size_t i = 0; i < size / 4; i++) reinterpret_cast<float *>(out.data)[i] = 1.0f;
  else if (op.kind == "add")
    for (size_t i = 0; i < size / SIZES[out.tensor.type]; i++) {
      if (out.tensor.type == 0) reinterpret_cast<float *>(out.data)[i] = reinterpret_cast<float *>(bound[0].data)[i] + reinterpret_cast<float *>(bound[1].data)[i];
      else put_integer(out, i, read_integer(bound[0].data, out.tensor.type, i) + read_integer(bound[1].data, out.tensor.type, i));
    }
}
// Indices of the elements that are not zero, dimension by dimension.
std::vector<Shape> find_nonzero(const Bound &source) {
  std::vector<Shape> found;
  size_t size = SIZES[source.tensor.type], count = byte_size(source.tensor, source.shape) / size;
  std::string zero(size, '\0');
  for (size_t i = 0; i < count; i++) {
    if (memcmp(source.data + i * size, zero.data(), size) == 0) continue;
    Shape index(source.shape.size());
    size_t rest = i;
    for (size_t d = index.size(); d-- > 0; rest /= static_cast<size_t>(source.shape[d])) index[d] = static_cast<int64_t>(rest % static_cast<size_t>(source.shape[d]));
    found.push_back(index);
  }
  return found;
}
// The block an output of data-dependent size is written to, and its shape; null when the application gives none.
bool run_nonzero(Context *self, const Op &op, Bound source, void *stream) {
  const std::string &name = op.names[1];
  Tensor *tensor = find(self->engine->plan, name);
  auto allocator = self->allocators.find(name);
  if (allocator == self->allocators.end()) return misuse(self->engine, "an output of data-dependent shape has no allocator"), false;
  stand_in_flush(stream);
  auto found = find_nonzero(source);
  Bound out{*tensor, {static_cast<int64_t>(source.shape.size()), static_cast<int64_t>(found.size())}, nullptr};
  size_t size = byte_size(*tensor, out.shape);
  // From another thread, as the real library may.
  std::thread([&] { out.data = static_cast<char *>(reallocate_output(allocator->second, name.c_str(), size, stream)); }).join();
  if (out.data == nullptr) return error(self->engine, "IOutputAllocator: no memory for " + name), false;
  if (stand_in_device_of(out.data, size) != self->engine->device) return misuse(self->engine, "the allocator gives no memory of the device"), false;
  Dims dims = to_dims(out.shape);
  std::thread([&] { notify_shape(allocator->second, name.c_str(), dims); }).join();
  for (size_t d = 0; d < source.shape.size(); d++)
    for (size_t i = 0; i < found.size(); i++) put_integer(out, d * found.size() + i, found[i][d]);
  return true;
}
bool context_enqueue(Context *self, void *stream) {
  Engine *engine = self->engine;
  if (const char *place = getenv("STAND_IN_CRASH"); place != nullptr && strcmp(place, "enqueue") == 0) crash();
  if (stand_in_fails("enqueue")) return error(engine, "IExecutionContext::enqueueV3: Error Code 1: Cuda Runtime (an illegal memory access was encountered)"), false;
  if (stand_in_current_device() != engine->device) return misuse(engine, "enqueueV3 while another device is current"), false;
  if (context_infer_shapes(self, 0, nullptr) != 0) return misuse(engine, "enqueueV3 before all shapes are known"), false;
  std::map<std::string, Bound> bound;
  for (auto &tensor : engine->plan.tensors) {
    Shape shape = shape_of(self, tensor.name);
    auto address = self->addresses.find(tensor.name);
    if (tensor.is_dynamic_size) continue;
    if (address == self->addresses.end()) return misuse(engine, "enqueueV3 before the address of " + tensor.name + " is set"), false;
    size_t size = byte_size(tensor, shape);
    int device = stand_in_device_of(address->second, size);
    if (!tensor.is_shape && device != engine->device) return misuse(engine, "the memory of " + tensor.name + " is too small or on another device"), false;
    if (tensor.is_shape && device >= 0) return misuse(engine, "a shape tensor lies in device memory"), false;
    bound[tensor.name] = {tensor, shape, static_cast<char *>(address->second)};
  }
  for (auto &op : engine->plan.ops) {
    if (op.kind == "nonzero") {
      if (stand_in_is_capturing(stream)) return error(engine, "an output of data-dependent shape cannot be captured"), false;
      if (!run_nonzero(self, op, bound[op.names[0]], stream)) return false;
      continue;
    }
    if (op.kind == "shapeof") {
      Bound &out = bound[op.names[1]];
      Shape shape = bound[op.names[0]].shape;
      for (size_t i = 0; i < shape.size(); i++) put_integer(out, i, shape[i]);
      continue;
    }
    if (op.kind == "sleep") {
      int ms = atoi(op.names[0].c_str());
      stand_in_enqueue(stream, [ms] { usleep(static_cast<useconds_t>(ms) * 1000); });
      continue;
    }
    std::vector<Bound> operands;
    for (auto &name : op.names) operands.push_back(bound[name]);
    if (!stand_in_enqueue(stream, [op, operands] { compute(op, operands); })) return misuse(engine, "enqueueV3 on a stream that is none of this device"), false;
  }
  return true;
}
void context_delete(Public *pub) {
  auto *self = static_cast<Context *>(pub->implementation);
  if (stand_in_current_device() != self->engine->device) stand_in_fault("a context is deleted while another device is current");
  self->engine->contexts--;
  live[2]--;
  delete self;
  delete pub;
}

void fill_tables() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto set = [](std::array<void *, 64> &table, int slot, void *function) { table[static_cast<size_t>(slot)] = function; };
    auto &r = runtime_methods;
    set(r, at(16, 2, 2), code(runtime_get_pimpl));
    set(r, at(2, 3, 3), code(runtime_deserialize));
    set(r, at(3, 5, 4), code(runtime_set_dla));
    set(r, at(9, 11, 10), code(runtime_get_logger));
    set(r, at(20, 21, 20), code(runtime_allow_host_code));
    auto &e = engine_methods;
    set(e, at(48, 2, 2), code(engine_get_pimpl));
    set(e, at(11, 5, 5), code(engine_create_context));
    set(e, at(21, 9, 7), code(engine_get_name));
    set(e, at(22, 10, 8), code(engine_get_profiles));
    set(e, at(34, 19, 15), code(engine_get_shape));
    set(e, at(35, 20, 16), code(engine_get_type));
    set(e, at(36, 21, 17), code(engine_get_location));
    set(e, at(37, 22, 18), code(engine_is_shape));
    set(e, at(38, 23, 19), code(engine_get_mode));
    set(e, at(39, 24, 20), code(engine_get_bytes));
    set(e, at(40, 25, 21), code(engine_get_components));
    set(e, at(41, 26, 22), code(engine_get_format));
    set(e, at(42, 27, 23), code(engine_get_format_text));
    set(e, at(43, 28, 24), code(engine_get_vector_dim));
    set(e, at(44, 29, 25), code(engine_get_profile_shape));
    set(e, at(45, 30, 26), code(engine_get_count));
    set(e, at(46, 31, 27), code(engine_get_tensor_name));
    auto &c = context_methods;
    set(c, at(49, 2, 2), code(context_get_pimpl));
    set(c, at(8, 7, 7), code(context_get_engine));
    set(c, at(9, 8, 8), code(context_set_name));
    set(c, at(10, 9, 9), code(context_get_name));
    set(c, at(25, 17, 16), code(context_set_profile));
    set(c, at(29, 21, 20), code(context_set_input_shape));
    set(c, at(30, 22, 21), code(context_get_shape));
    set(c, at(32, 24, 23), code(context_set_address));
    set(c, at(34, 26, 25), code(context_set_input_address));
    set(c, at(35, 28, 27), code(context_infer_shapes));
    set(c, at(39, 32, 31), code(context_set_allocator));
    set(c, at(41, 34, 33), code(context_get_max_size));
    set(c, at(44, 37, 36), code(context_enqueue));
    runtime_deletes = {code(trap<0>), code(runtime_delete)};
    engine_deletes = {code(trap<0>), code(engine_delete)};
    context_deletes = {code(trap<0>), code(context_delete)};
    const char *broken = getenv("STAND_IN_BREAK");
    if (broken != nullptr && strcmp(broken, "slot") == 0) set(e, at(45, 30, 26), code(getpid));
    if (broken != nullptr && strcmp(broken, "engine") == 0) std::swap(e[static_cast<size_t>(at(45, 30, 26))], e[static_cast<size_t>(at(22, 10, 8))]);
  });
}
}  // namespace

extern "C" {
int32_t getInferLibVersion() {
  const char *text = getenv("STAND_IN_VERSION");
  return text == nullptr ? VERSION : atoi(text);
}
#ifndef WITHOUT_RUNTIME
void *createInferRuntime_INTERNAL(void *logger, int32_t version) {
  if (const char *place = getenv("STAND_IN_CRASH"); place != nullptr && strcmp(place, "runtime") == 0) crash();
  if (version != getInferLibVersion()) {
    log_line(logger, 1, "the application was built for another version");
    return nullptr;
  }
  if (MAJOR >= 11 && !is_interface(logger, "ILogger")) return stand_in_fault("the logger is no ILogger"), nullptr;
  if (stand_in_fails("runtime")) return log_line(logger, 1, "CUDA initialization failure with error: 35"), nullptr;
  fill_tables();
  auto *runtime = new Runtime{runtime_methods.data(), nullptr, logger};
  runtime->pub = new Public{runtime_deletes.data(), runtime};
  live[0]++;
  return runtime->pub;
}
#endif
// Runtimes, engines and contexts that live.
int stand_in_trt_live() { return live[0] + live[1] + live[2]; }

__attribute__((destructor)) static void trt_at_end() {
  const char *path = getenv("STAND_IN_REPORT");
  FILE *file = path == nullptr ? nullptr : fopen(path, "a");
  if (file == nullptr) return;
  fprintf(file, "tensorrt pid=%d version=%d runtimes=%d engines=%d contexts=%d\n", static_cast<int>(getpid()), VERSION, live[0], live[1], live[2]);
  fclose(file);
}
}
