// What the stand-ins of CUDA and of TensorRT share.
#pragma once
#include <cstddef>
#include <functional>

// Adds work to a stream; it is done no sooner than somebody waits for the stream. False when it is no stream of the
// current device.
extern "C++" bool stand_in_enqueue(void *stream, std::function<void()> work);
// Waits for a stream, as a kernel launch does that needs a result.
extern "C++" bool stand_in_flush(void *stream);
// The device whose memory holds `size` bytes from `address` on; -1 = none.
extern "C" int stand_in_device_of(const void *address, size_t size);
extern "C" int stand_in_current_device();
// Whether the stream is being captured.
extern "C" bool stand_in_is_capturing(void *stream);
// Notes a wrong use: it is told at the end, and by stand_in_faults().
extern "C" void stand_in_fault(const char *text);
// Whether the call of this name is to fail now: STAND_IN_FAIL is a list of NAME:NUMBER, 1 = the next call.
extern "C" bool stand_in_fails(const char *name);
