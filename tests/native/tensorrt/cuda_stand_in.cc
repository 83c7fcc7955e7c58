// A library with the ABI of the CUDA runtime calls that executing backends use. Device memory is memory of this
// machine; work on a stream is done when somebody waits for it and not before, so that a missing wait shows. The
// current device is kept per thread, as by the real library, and calls for another device are refused.
//
// Device memory can be handed to other processes (cudaIpc...), which open it by the file behind it.
//
// STAND_IN_DEVICES = number of devices (2), STAND_IN_CAPABILITY = their compute capability (8.6), STAND_IN_FAIL =
// calls that fail, STAND_IN_REPORT = file that gets a line when the process ends, STAND_IN_COPIES = one that then gets the
// number of copies to a device, from one, and on one, STAND_IN_STREAM_US = time that each
// wait for a stream takes.
#include "cuda_stand_in.h"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, MAP_FAILURE = 205, INVALID_HANDLE = 400, LAUNCH_FAILURE = 719 };
using Work = std::function<void()>;
struct Graph { std::vector<Work> works; int device; };
struct Stream { int device; std::deque<Work> queue; uint64_t added = 0, done = 0; Graph *capture = nullptr; };
struct Event { int device; Stream *stream = nullptr; uint64_t number = 0; bool recorded = false; };
enum Kind { DEVICE, PINNED, IMPORTED };
// Memory of a device has a file; of an imported block `users` counts who opened it.
struct Block { size_t size; int device; Kind kind; int fd, users; };
struct IpcHandle { uint64_t magic, size; int32_t device, owner, fd; char rest[36]; };
static_assert(sizeof(IpcHandle) == 64, "size of cudaIpcMemHandle_t");
constexpr uint64_t MAGIC = 0x6e6572656964ull;

// Never destroyed: native threads may come here while the process ends.
std::recursive_mutex &lock = *new std::recursive_mutex;
std::map<uintptr_t, Block> &blocks = *new std::map<uintptr_t, Block>;
std::set<Stream *> &streams = *new std::set<Stream *>;
std::set<Event *> &events = *new std::set<Event *>;
std::set<Graph *> &graphs = *new std::set<Graph *>, &executables = *new std::set<Graph *>;
std::vector<std::string> &faults = *new std::vector<std::string>;
std::map<std::pair<int, int>, uintptr_t> &imports = *new std::map<std::pair<int, int>, uintptr_t>;
// By the number of cudaMemcpyKind.
int copies[4];
thread_local int current_device = 0;
thread_local int last_error = 0;
using Guard = std::lock_guard<std::recursive_mutex>;

int report(int status) {
  if (status != SUCCESS) last_error = status;
  return status;
}
int misuse(const char *text, int status = INVALID_VALUE) {
  stand_in_fault(text);
  return report(status);
}
int device_count() {
  const char *text = getenv("STAND_IN_DEVICES");
  return text == nullptr ? 2 : atoi(text);
}
const Block *find(const void *address, size_t size) {
  auto at = reinterpret_cast<uintptr_t>(address);
  auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return nullptr;
  auto &[start, block] = *std::prev(next);
  return at - start <= block.size && size <= block.size - (at - start) ? &block : nullptr;
}
size_t pages(size_t size) { return (size + 4095) / 4096 * 4096; }
void *map_file(int fd, size_t size) {
  void *memory = mmap(nullptr, pages(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
int allocate(void **address, size_t size, Kind kind) {
  Guard guard(lock);
  int fd = memfd_create("cuda_stand_in", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(pages(size))) != 0) return report(OUT_OF_MEMORY);
  void *memory = map_file(fd, size);
  if (memory == nullptr) return close(fd), report(OUT_OF_MEMORY);
  memset(memory, 0xa5, size);
  blocks[reinterpret_cast<uintptr_t>(memory)] = {size, current_device, kind, fd, 1};
  *address = memory;
  return SUCCESS;
}
void unmap(std::map<uintptr_t, Block>::iterator found) {
  munmap(reinterpret_cast<void *>(found->first), pages(found->second.size));
  if (found->second.fd >= 0) close(found->second.fd);
  blocks.erase(found);
}
void finish_work(int device) {
  for (Stream *stream : streams)
    if (!stream->queue.empty() && stream->device == device) stand_in_flush(stream);
}
int release(void *address, Kind kind) {
  Guard guard(lock);
  if (address == nullptr) return SUCCESS;
  auto found = blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks.end() || found->second.kind != kind) return misuse("memory is freed that is not allocated");
  if (kind == DEVICE && found->second.device != current_device) return misuse("memory of another device is freed");
  finish_work(found->second.device);
  unmap(found);
  return SUCCESS;
}
bool is_on_device(const void *address, size_t size, int device) {
  const Block *block = find(address, size);
  return block != nullptr && block->kind != PINNED && block->device == device;
}
// What is wrong with a copy; null when it may be made.
const char *copy_fault(const void *target, const void *source, size_t size, int kind) {
  if (kind < 1 || kind > 3) return "a copy of unknown kind";
  if (size == 0) return nullptr;
  bool to_device = kind != 2, from_device = kind != 1;
  if (to_device && !is_on_device(target, size, current_device)) return "a copy leaves the memory of the current device";
  if (from_device && !is_on_device(source, size, current_device)) return "a copy leaves the memory of the current device";
  if ((!to_device && stand_in_device_of(target, 0) >= 0) || (!from_device && stand_in_device_of(source, 0) >= 0)) return "a copy takes device memory for memory of the machine";
  return nullptr;
}
Stream *find_stream(void *handle) {
  auto *stream = static_cast<Stream *>(handle);
  return streams.count(stream) ? stream : nullptr;
}
void run_until(Stream *stream, uint64_t number) {
  while (stream->done < number && !stream->queue.empty()) {
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->done++;
    work();
  }
}
}  // namespace

extern "C++" bool stand_in_enqueue(void *handle, Work work) {
  Guard guard(lock);
  Stream *stream = find_stream(handle);
  if (stream == nullptr || stream->device != current_device) return false;
  if (stream->capture != nullptr) {
    stream->capture->works.push_back(std::move(work));
    return true;
  }
  stream->queue.push_back(std::move(work));
  stream->added++;
  return true;
}
extern "C++" bool stand_in_flush(void *handle) {
  Guard guard(lock);
  Stream *stream = find_stream(handle);
  if (stream == nullptr) return false;
  run_until(stream, stream->added);
  return true;
}

extern "C" {
void stand_in_fault(const char *text) {
  Guard guard(lock);
  faults.push_back(text);
  fprintf(stderr, "stand-in: %s\n", text);
}
bool stand_in_fails(const char *name) {
  Guard guard(lock);
  static std::string seen;
  static std::map<std::string, int> counts;
  const char *text = getenv("STAND_IN_FAIL");
  if (text == nullptr || *text == 0) return seen.clear(), false;
  if (seen != text) {
    seen = text;
    counts.clear();
  }
  int count = ++counts[name];
  std::string list = "," + seen + ",", one = std::string(",") + name + ":";
  if (list.find(one + "*,") != std::string::npos) return true;
  return list.find(one + std::to_string(count) + ",") != std::string::npos;
}
int stand_in_device_of(const void *address, size_t size) {
  Guard guard(lock);
  const Block *block = find(address, size);
  return block == nullptr || block->kind == PINNED ? -1 : block->device;
}
int stand_in_current_device() { return current_device; }
bool stand_in_is_capturing(void *handle) {
  Guard guard(lock);
  Stream *stream = find_stream(handle);
  return stream != nullptr && stream->capture != nullptr;
}
// Objects that live: memory, streams, events, graphs.
int stand_in_cuda_live() {
  Guard guard(lock);
  return static_cast<int>(blocks.size() + streams.size() + events.size() + graphs.size() + executables.size());
}
int stand_in_faults() {
  Guard guard(lock);
  return static_cast<int>(faults.size());
}

#define FAIL_ON_DEMAND(name, status) \
  if (stand_in_fails(name)) return report(status)

int cudaGetDeviceCount(int *count) {
  FAIL_ON_DEMAND("cudaGetDeviceCount", 35);
  *count = device_count();
  return *count > 0 ? SUCCESS : report(NO_DEVICE);
}
int cudaRuntimeGetVersion(int *version) { return *version = 12080, SUCCESS; }
int cudaDriverGetVersion(int *version) { return *version = 12080, SUCCESS; }
int cudaSetDevice(int device) {
  FAIL_ON_DEMAND("cudaSetDevice", INVALID_DEVICE);
  if (device < 0 || device >= device_count()) return report(INVALID_DEVICE);
  current_device = device;
  return SUCCESS;
}
int cudaGetLastError() {
  int error = last_error;
  last_error = SUCCESS;
  return error;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  if (device < 0 || device >= device_count()) return report(INVALID_DEVICE);
  const char *text = getenv("STAND_IN_CAPABILITY");
  if (text == nullptr) text = "8.6";
  if (attribute == 75) *value = atoi(text);
  else if (attribute == 76) *value = atoi(strchr(text, '.') + 1);
  else return misuse("an attribute of the device is asked for that is not known");
  return SUCCESS;
}
int cudaMalloc(void **address, size_t size) {
  FAIL_ON_DEMAND("cudaMalloc", OUT_OF_MEMORY);
  return allocate(address, size, DEVICE);
}
int cudaFree(void *address) { return release(address, DEVICE); }
int cudaHostAlloc(void **address, size_t size, unsigned flags) {
  FAIL_ON_DEMAND("cudaHostAlloc", OUT_OF_MEMORY);
  if (flags > 7) return misuse("cudaHostAlloc gets unknown flags");
  return allocate(address, size, PINNED);
}
int cudaFreeHost(void *address) { return release(address, PINNED); }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
int cudaStreamCreateWithPriority(void **handle, unsigned flags, int priority) {
  FAIL_ON_DEMAND("cudaStreamCreateWithPriority", OUT_OF_MEMORY);
  if (flags != 1 || priority > 0 || priority < -5) return misuse("a stream gets wrong flags or priority");
  Guard guard(lock);
  auto *stream = new Stream{current_device, {}};
  streams.insert(stream);
  *handle = stream;
  return SUCCESS;
}
int cudaStreamSynchronize(void *handle) {
  if (const char *us = getenv("STAND_IN_STREAM_US")) usleep(static_cast<useconds_t>(atoi(us)));
  if (!stand_in_flush(handle)) return misuse("a wait for a stream that is none", INVALID_HANDLE);
  FAIL_ON_DEMAND("cudaStreamSynchronize", LAUNCH_FAILURE);
  return SUCCESS;
}
int cudaStreamWaitEvent(void *handle, void *event_handle, unsigned) {
  Guard guard(lock);
  auto *event = static_cast<Event *>(event_handle);
  if (!events.count(event) || !event->recorded) return misuse("a stream waits for an event that is not recorded", INVALID_HANDLE);
  Stream *source = event->stream;
  uint64_t number = event->number;
  bool known = stand_in_enqueue(handle, [source, number] { run_until(source, number); });
  return known ? SUCCESS : misuse("a stream waits that is none of this device", INVALID_HANDLE);
}
int cudaStreamDestroy(void *handle) {
  Guard guard(lock);
  Stream *stream = find_stream(handle);
  if (stream == nullptr) return misuse("a stream is destroyed that is none", INVALID_HANDLE);
  if (!stream->queue.empty()) stand_in_fault("a stream is destroyed with work in it");
  streams.erase(stream);
  delete stream;
  return SUCCESS;
}
int cudaEventCreateWithFlags(void **handle, unsigned flags) {
  FAIL_ON_DEMAND("cudaEventCreateWithFlags", OUT_OF_MEMORY);
  if ((flags & 2) == 0) return misuse("an event with times is made");
  Guard guard(lock);
  auto *event = new Event{current_device};
  events.insert(event);
  *handle = event;
  return SUCCESS;
}
int cudaEventRecord(void *event_handle, void *stream_handle) {
  FAIL_ON_DEMAND("cudaEventRecord", LAUNCH_FAILURE);
  Guard guard(lock);
  auto *event = static_cast<Event *>(event_handle);
  Stream *stream = find_stream(stream_handle);
  if (!events.count(event) || stream == nullptr) return misuse("no event or no stream is recorded", INVALID_HANDLE);
  if (event->device != stream->device) return misuse("an event of another device is recorded", INVALID_HANDLE);
  event->stream = stream;
  event->number = stream->added;
  event->recorded = true;
  return SUCCESS;
}
int cudaEventSynchronize(void *event_handle) {
  if (const char *us = getenv("STAND_IN_STREAM_US")) usleep(static_cast<useconds_t>(atoi(us)));
  Guard guard(lock);
  auto *event = static_cast<Event *>(event_handle);
  if (!events.count(event)) return misuse("a wait for an event that is none", INVALID_HANDLE);
  FAIL_ON_DEMAND("cudaEventSynchronize", LAUNCH_FAILURE);
  if (event->recorded && streams.count(event->stream)) run_until(event->stream, event->number);
  return SUCCESS;
}
int cudaEventDestroy(void *event_handle) {
  Guard guard(lock);
  auto *event = static_cast<Event *>(event_handle);
  if (events.erase(event) == 0) return misuse("an event is destroyed that is none", INVALID_HANDLE);
  delete event;
  return SUCCESS;
}
int cudaMemcpyAsync(void *target, const void *source, size_t size, int kind, void *stream) {
  FAIL_ON_DEMAND("cudaMemcpyAsync", INVALID_VALUE);
  Guard guard(lock);
  if (const char *fault = copy_fault(target, source, size, kind)) return misuse(fault);
  copies[kind]++;
  bool known = stand_in_enqueue(stream, [=] { if (size > 0) memcpy(target, source, size); });
  return known ? SUCCESS : misuse("a copy on a stream that is none of this device", INVALID_HANDLE);
}
int cudaMemcpy(void *target, const void *source, size_t size, int kind) {
  Guard guard(lock);
  if (const char *fault = copy_fault(target, source, size, kind)) return misuse(fault);
  copies[kind]++;
  memcpy(target, source, size);
  return SUCCESS;
}
// Copies of a kind so far.
int stand_in_copies(int kind) {
  Guard guard(lock);
  return copies[kind];
}
int cudaIpcGetMemHandle(IpcHandle *handle, void *address) {
  Guard guard(lock);
  auto found = blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks.end() || found->second.kind != DEVICE) return report(INVALID_VALUE);
  const Block &block = found->second;
  *handle = {MAGIC, block.size, block.device, static_cast<int32_t>(getpid()), block.fd, {}};
  return SUCCESS;
}
int cudaIpcOpenMemHandle(void **address, IpcHandle handle, unsigned flags) {
  Guard guard(lock);
  if (flags != 1 || handle.magic != MAGIC || handle.device != current_device || handle.owner == static_cast<int32_t>(getpid())) return report(INVALID_HANDLE);
  auto known = imports.find({handle.owner, handle.fd});
  if (known != imports.end()) {
    blocks[known->second].users++;
    *address = reinterpret_cast<void *>(known->second);
    return SUCCESS;
  }
  std::string path = "/proc/" + std::to_string(handle.owner) + "/fd/" + std::to_string(handle.fd);
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return report(INVALID_HANDLE);
  void *memory = map_file(fd, handle.size);
  if (memory == nullptr) return close(fd), report(MAP_FAILURE);
  auto at = reinterpret_cast<uintptr_t>(memory);
  blocks[at] = {handle.size, handle.device, IMPORTED, fd, 1};
  imports[{handle.owner, handle.fd}] = at;
  *address = memory;
  return SUCCESS;
}
int cudaIpcCloseMemHandle(void *address) {
  Guard guard(lock);
  auto found = blocks.find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks.end() || found->second.kind != IMPORTED) return misuse("memory of another process is closed that is not open");
  if (--found->second.users > 0) return SUCCESS;
  for (Stream *stream : streams)
    if (!stream->queue.empty() && stream->device == found->second.device) stand_in_fault("memory of another process is closed while a stream has work");
  for (auto each = imports.begin(); each != imports.end(); ++each)
    if (each->second == found->first) {
      imports.erase(each);
      break;
    }
  unmap(found);
  return SUCCESS;
}
// cuMemGetAddressRange_v2 of the driver.
int stand_in_address_range(uint64_t *base, size_t *size, uint64_t address) {
  Guard guard(lock);
  auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return INVALID_VALUE;
  auto &[start, block] = *std::prev(next);
  if (address - start >= block.size) return INVALID_VALUE;
  *base = start;
  *size = block.size;
  return SUCCESS;
}
int cudaStreamBeginCapture(void *handle, int mode) {
  Guard guard(lock);
  Stream *stream = find_stream(handle);
  if (stream == nullptr || stream->capture != nullptr || mode < 0 || mode > 2) return misuse("a capture that cannot begin", INVALID_HANDLE);
  stream->capture = new Graph{{}, stream->device};
  return SUCCESS;
}
int cudaStreamEndCapture(void *handle, void **graph) {
  Guard guard(lock);
  Stream *stream = find_stream(handle);
  if (stream == nullptr || stream->capture == nullptr) return misuse("a capture ends that did not begin", INVALID_HANDLE);
  graphs.insert(stream->capture);
  *graph = stream->capture;
  stream->capture = nullptr;
  if (stand_in_fails("cudaStreamEndCapture")) {
    graphs.erase(static_cast<Graph *>(*graph));
    delete static_cast<Graph *>(*graph);
    *graph = nullptr;
    return report(901);
  }
  return SUCCESS;
}
int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
  Guard guard(lock);
  if (!graphs.count(static_cast<Graph *>(graph))) return misuse("a graph is instantiated that is none", INVALID_HANDLE);
  auto *copy = new Graph(*static_cast<Graph *>(graph));
  executables.insert(copy);
  *executable = copy;
  return SUCCESS;
}
int cudaGraphLaunch(void *executable, void *handle) {
  FAIL_ON_DEMAND("cudaGraphLaunch", LAUNCH_FAILURE);
  Guard guard(lock);
  auto *graph = static_cast<Graph *>(executable);
  if (!executables.count(graph)) return misuse("a graph is launched that is none", INVALID_HANDLE);
  bool known = stand_in_enqueue(handle, [graph] { for (auto &work : graph->works) work(); });
  return known ? SUCCESS : misuse("a graph is launched on a stream that is none of this device", INVALID_HANDLE);
}
int cudaGraphExecDestroy(void *executable) {
  Guard guard(lock);
  if (executables.erase(static_cast<Graph *>(executable)) == 0) return misuse("an executable graph is destroyed that is none", INVALID_HANDLE);
  delete static_cast<Graph *>(executable);
  return SUCCESS;
}
int cudaGraphDestroy(void *graph) {
  Guard guard(lock);
  if (graphs.erase(static_cast<Graph *>(graph)) == 0) return misuse("a graph is destroyed that is none", INVALID_HANDLE);
  delete static_cast<Graph *>(graph);
  return SUCCESS;
}
const char *cudaGetErrorName(int error) {
  switch (error) {
    case SUCCESS: return "cudaSuccess";
    case INVALID_VALUE: return "cudaErrorInvalidValue";
    case OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case 35: return "cudaErrorInsufficientDriver";
    case NO_DEVICE: return "cudaErrorNoDevice";
    case INVALID_DEVICE: return "cudaErrorInvalidDevice";
    case INVALID_HANDLE: return "cudaErrorInvalidResourceHandle";
    case LAUNCH_FAILURE: return "cudaErrorLaunchFailure";
    case 901: return "cudaErrorStreamCaptureInvalidated";
    default: return "cudaErrorUnknown";
  }
}
const char *cudaGetErrorString(int error) {
  switch (error) {
    case OUT_OF_MEMORY: return "out of memory";
    case INVALID_DEVICE: return "invalid device ordinal";
    case LAUNCH_FAILURE: return "unspecified launch failure";
    default: return cudaGetErrorName(error);
  }
}

static void tell_copies() {
  const char *path = getenv("STAND_IN_COPIES");
  FILE *file = path == nullptr ? nullptr : fopen(path, "a");
  if (file == nullptr) return;
  fprintf(file, "pid=%d to=%d from=%d on=%d\n", static_cast<int>(getpid()), copies[1], copies[2], copies[3]);
  fclose(file);
}
__attribute__((destructor)) static void at_end() {
  tell_copies();
  const char *path = getenv("STAND_IN_REPORT");
  if (path == nullptr) return;
  FILE *file = fopen(path, "a");
  if (file == nullptr) return;
  fprintf(file, "cuda pid=%d memory=%zu streams=%zu events=%zu graphs=%zu faults=%zu\n", static_cast<int>(getpid()), blocks.size(), streams.size(), events.size(), graphs.size() + executables.size(), faults.size());
  for (auto &fault : faults) fprintf(file, "fault %s\n", fault.c_str());
  fclose(file);
}
}
