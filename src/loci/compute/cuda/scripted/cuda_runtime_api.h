// SPDX-License-Identifier: Apache-2.0
// What runtime.cc uses of CUDA's header of this name, over devices that a test scripts. So the calls that the
// real runtime makes are tested where there is no GPU. Nothing is computed or copied. It models this much:
//
// - A thread has a current device, at first the first one.
// - A call that needs a context makes one on the current device, whichever device its arguments are of. A
//   device refuses that where the test says so, as if another process had it for itself.
// - A call answers what the test has scripted for it, once; else cudaSuccess.
//
// Threads take turns; no two make calls at once.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorNotPermitted = 800,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
};

namespace loci::cuda::scripted {

struct Driver {
  int devices = 1;
  std::set<int> refusing;                   // no context can be made on these
  std::map<std::string, cudaError_t> next;  // by a function's name: what its next call answers
  std::map<std::string, unsigned> calls;    // by name: how often each function was called
  std::set<int> contexts;                   // the devices that have one
};
inline Driver& driver() {
  static Driver instance;
  return instance;
}
inline thread_local int current_device = 0;

// A call for which no context is needed.
inline cudaError_t ask(const char* name) {
  ++driver().calls[name];
  const auto scripted = driver().next.extract(name);
  return scripted.empty() ? cudaSuccess : scripted.mapped();
}
// Any other.
inline cudaError_t call(const char* name) {
  if (driver().refusing.contains(current_device)) return cudaErrorDevicesUnavailable;
  driver().contexts.insert(current_device);
  return ask(name);
}
// A call that makes something.
template <class Handle>
cudaError_t make(const char* name, Handle* handle) {
  static std::byte made[64];
  const cudaError_t error = call(name);
  if (error == cudaSuccess) *handle = reinterpret_cast<Handle>(made);
  return error;
}

}  // namespace loci::cuda::scripted

// --- devices ---

struct cudaDeviceProp {
  char name[256] = "scripted device";
  int major = 9, minor = 0, multiProcessorCount = 132, l2CacheSize = 1 << 20;
  std::size_t totalGlobalMem = std::size_t{80} << 30, sharedMemPerBlockOptin = 227u << 10;
};
constexpr unsigned cudaDeviceScheduleBlockingSync = 4;

inline const char* cudaGetErrorString(cudaError_t) { return "a scripted error"; }
inline const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaErrorScripted";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = loci::cuda::scripted::driver().devices;
  return loci::cuda::scripted::ask("cudaGetDeviceCount");
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return loci::cuda::scripted::ask("cudaDriverGetVersion");
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  return loci::cuda::scripted::ask("cudaGetDeviceProperties");
}
// (Since CUDA 12 it makes the context.)
inline cudaError_t cudaSetDevice(int device) {
  if (device >= loci::cuda::scripted::driver().devices) return cudaErrorInvalidDevice;
  loci::cuda::scripted::current_device = device;
  return loci::cuda::scripted::call("cudaSetDevice");
}
inline cudaError_t cudaSetDeviceFlags(unsigned) { return loci::cuda::scripted::call("cudaSetDeviceFlags"); }
inline cudaError_t cudaDeviceSynchronize() { return loci::cuda::scripted::call("cudaDeviceSynchronize"); }

// --- memory ---

constexpr unsigned cudaHostRegisterPortable = 1, cudaHostAllocPortable = 1;

inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = cudaDeviceProp{}.totalGlobalMem;
  return loci::cuda::scripted::call("cudaMemGetInfo");
}
inline cudaError_t cudaMalloc(void** data, std::size_t) {
  return loci::cuda::scripted::make("cudaMalloc", data);
}
inline cudaError_t cudaFree(void*) { return loci::cuda::scripted::call("cudaFree"); }
inline cudaError_t cudaHostAlloc(void** data, std::size_t, unsigned) {
  return loci::cuda::scripted::make("cudaHostAlloc", data);
}
inline cudaError_t cudaFreeHost(void*) { return loci::cuda::scripted::call("cudaFreeHost"); }
inline cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  return loci::cuda::scripted::call("cudaHostRegister");
}
inline cudaError_t cudaHostUnregister(void*) { return loci::cuda::scripted::call("cudaHostUnregister"); }

// --- events ---

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
constexpr unsigned cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return loci::cuda::scripted::make("cudaEventCreateWithFlags", event);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return loci::cuda::scripted::call("cudaEventDestroy"); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return loci::cuda::scripted::call("cudaEventQuery"); }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return loci::cuda::scripted::call("cudaEventSynchronize");
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return loci::cuda::scripted::call("cudaEventElapsedTime");
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return loci::cuda::scripted::call("cudaEventRecord");
}

// --- streams ---

constexpr unsigned cudaStreamNonBlocking = 1;
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaMemcpySrcAccessOrder { cudaMemcpySrcAccessOrderStream = 1 };
struct cudaMemcpyAttributes {
  cudaMemcpySrcAccessOrder srcAccessOrder;
};

inline cudaError_t cudaDeviceGetStreamPriorityRange(int*, int*) {
  return loci::cuda::scripted::call("cudaDeviceGetStreamPriorityRange");
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return loci::cuda::scripted::make("cudaStreamCreateWithPriority", stream);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return loci::cuda::scripted::call("cudaStreamDestroy"); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return loci::cuda::scripted::call("cudaStreamSynchronize");
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return loci::cuda::scripted::call("cudaStreamWaitEvent");
}
inline cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return loci::cuda::scripted::call("cudaMemcpyAsync");
}
inline cudaError_t cudaMemcpyBatchAsync(void* const*, const void* const*, const std::size_t*, std::size_t,
                                        cudaMemcpyAttributes*, std::size_t*, std::size_t, cudaStream_t) {
  return loci::cuda::scripted::call("cudaMemcpyBatchAsync");
}
inline cudaError_t cudaMemcpy2DAsync(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t,
                                     cudaMemcpyKind, cudaStream_t) {
  return loci::cuda::scripted::call("cudaMemcpy2DAsync");
}
inline cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) {
  return loci::cuda::scripted::call("cudaMemsetAsync");
}

// --- graphs and kernels ---

using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct dim3 {
  dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
  unsigned x, y, z;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return loci::cuda::scripted::call("cudaStreamBeginCapture");
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  return loci::cuda::scripted::make("cudaStreamEndCapture", graph);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t, unsigned long long) {
  return loci::cuda::scripted::make("cudaGraphInstantiate", exec);
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return loci::cuda::scripted::call("cudaGraphDestroy"); }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return loci::cuda::scripted::call("cudaGraphExecDestroy");
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return loci::cuda::scripted::call("cudaGraphLaunch");
}
inline cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return loci::cuda::scripted::call("cudaFuncSetAttribute");
}
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return loci::cuda::scripted::call("cudaLaunchKernelExC");
}
