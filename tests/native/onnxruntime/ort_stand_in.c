/*
 * A library of our own with the ABI of ONNX Runtime: it has no models, takes execution providers, and keeps a list of
 * the calls, one a line. An option named `nonsense` is refused.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 428
#define LOG_SIZE 65536

typedef const char *Status; /* the message; NULL = success */

static void *table[SLOTS];
static char calls[LOG_SIZE];
static int thing; /* what every object is */

static void note(const char *text) {
  if (strlen(calls) + strlen(text) + 2 < LOG_SIZE) strcat(strcat(calls, text), "\n");
}

const char *stand_in_calls(void) { return calls; }
void stand_in_reset(void) { calls[0] = 0; }

static void missing(void) {
  fputs("the stand-in has no such function\n", stderr);
  abort();
}

static Status done(void) { return NULL; }
static void nothing(void) {}
static Status make_1(void **out) { return *out = &thing, NULL; }
static Status make_3(int a, int b, void **out) { return (void)a, (void)b, *out = &thing, NULL; }
static Status make_env(int level, const char *id, void **out) { return make_3(level, id != 0, out); }
static int code_of(Status status) { return status != NULL; }
static const char *message_of(Status status) { return status; }

static Status take_options(const char *call, const char *const *keys, const char *const *values, size_t count) {
  char line[4096];
  size_t used = (size_t)snprintf(line, sizeof line, "%s", call);
  for (size_t i = 0; i < count && used < sizeof line; i++) {
    if (strcmp(keys[i], "nonsense") == 0) return "Unknown provider option: \"nonsense\"";
    used += (size_t)snprintf(line + used, sizeof line - used, " %s=%s", keys[i], values[i]);
  }
  note(line);
  return NULL;
}

#define PROVIDER(name)                                                                             \
  static Status create_##name(void **out) { return note("create " #name), make_1(out); }           \
  static Status update_##name(void *self, const char *const *keys, const char *const *values, size_t count) { \
    return (void)self, take_options("update " #name, keys, values, count);                         \
  }                                                                                                \
  static Status append_##name(void *options, void *self) {                                         \
    return (void)options, (void)self, note("append " #name), NULL;                                 \
  }                                                                                                \
  static void release_##name(void *self) { (void)self, note("release " #name); }

PROVIDER(cuda)
PROVIDER(tensorrt)

static Status append_openvino(void *options, const char *const *keys, const char *const *values, size_t count) {
  return (void)options, take_options("append openvino", keys, values, count);
}

static Status append_named(void *options, const char *name, const char *const *keys, const char *const *values,
                           size_t count) {
  char call[256];
  snprintf(call, sizeof call, "append %s", name);
  return (void)options, take_options(call, keys, values, count);
}

static Status create_session(void *env, void *bytes, size_t size, void *options, void **out) {
  (void)env, (void)bytes, (void)size, (void)options, (void)out;
  return note("create session"), "the stand-in has no models";
}

static void release_options(void *options) { (void)options, note("release options"); }

static Status list_providers(char ***out, int *count) {
  static char *names[] = {"TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider",
                          "CPUExecutionProvider"};
  return *out = names, *count = 4, NULL;
}

static void *get_api(uint32_t version) {
  (void)version;
  for (int i = 0; i < SLOTS; i++) table[i] = (void *)missing;
  int no_ops[] = {6, 22, 23, 24, 25, 126, 130};
  for (size_t i = 0; i < sizeof no_ops / sizeof *no_ops; i++) table[no_ops[i]] = (void *)done;
  int releases[] = {92, 93, 94};
  for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) table[releases[i]] = (void *)nothing;
  table[1] = (void *)code_of, table[2] = (void *)message_of, table[3] = (void *)make_env;
  table[8] = (void *)create_session, table[10] = (void *)make_1, table[69] = (void *)make_3;
  table[78] = (void *)make_1, table[100] = (void *)release_options, table[125] = (void *)list_providers;
  table[170] = (void *)append_tensorrt, table[171] = (void *)create_tensorrt;
  table[172] = (void *)update_tensorrt, table[174] = (void *)release_tensorrt;
  table[204] = (void *)append_cuda, table[205] = (void *)create_cuda;
  table[206] = (void *)update_cuda, table[208] = (void *)release_cuda;
  table[216] = (void *)append_named, table[275] = (void *)append_openvino;
  return table;
}

static const char *get_version(void) { return "1.30.0"; }

struct base {
  void *(*get_api)(uint32_t);
  const char *(*get_version)(void);
};

const struct base *OrtGetApiBase(void) {
  static const struct base base = {get_api, get_version};
  return &base;
}
