// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, loaded at run time: without it the program starts all the same and computes with its own kernels.
#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/compute/cuda/products/library_products.h"

namespace loci::cuda {
namespace {

constexpr const char* kName = "libcublasLt.so.13";
constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{32} << 20;  // what its Hopper kernels ask for
constexpr std::size_t kPlansMax = 4096;                             // kept; then all are forgotten

// Of the library, what is used.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;

  bool find(void* library) {
    const auto named = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return named(create, "cublasLtCreate") && named(destroy, "cublasLtDestroy") &&
           named(version, "cublasLtGetVersion") && named(matmul, "cublasLtMatmul") &&
           named(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           named(create_operation, "cublasLtMatmulDescCreate") &&
           named(destroy_operation, "cublasLtMatmulDescDestroy") &&
           named(set_operation, "cublasLtMatmulDescSetAttribute") &&
           named(create_layout, "cublasLtMatrixLayoutCreate") &&
           named(destroy_layout, "cublasLtMatrixLayoutDestroy") &&
           named(create_preference, "cublasLtMatmulPreferenceCreate") &&
           named(destroy_preference, "cublasLtMatmulPreferenceDestroy") &&
           named(set_preference, "cublasLtMatmulPreferenceSetAttribute");
  }
};

// The folders of a list like PATH's.
std::vector<std::string> folders_of(const char* variable) {
  std::vector<std::string> folders;
  const char* text = std::getenv(variable);
  std::istringstream list(text == nullptr ? "" : text);
  for (std::string folder; std::getline(list, folder, ':');) {
    if (!folder.empty()) folders.push_back(folder);
  }
  return folders;
}

// Where the library may be: as the loader finds it (LD_LIBRARY_PATH, ldconfig), beside the program, in the
// packages of Python's environments (an active one, .venv here, those whose python3 is in PATH, PYTHONPATH,
// the user's, the system's), in a toolkit.
std::vector<std::string> places() {
  std::vector<std::string> patterns;
  const auto add_python = [&patterns](const std::string& root) {
    patterns.push_back(root + "/lib/python3*/site-packages/nvidia/cu13/lib");
    patterns.push_back(root + "/lib/python3*/dist-packages/nvidia/cu13/lib");
  };
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* environment = std::getenv(variable)) add_python(environment);
  }
  add_python(".venv");
  for (const std::string& folder : folders_of("PYTHONPATH")) patterns.push_back(folder + "/nvidia/cu13/lib");
  for (const std::string& folder : folders_of("PATH")) {
    if (access((folder + "/python3").c_str(), X_OK) == 0) add_python(folder + "/..");
  }
  if (const char* home = std::getenv("HOME")) add_python(std::string(home) + "/.local");
  add_python("/usr/local");
  add_python("/usr");
  add_python("/opt/*");
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* toolkit = std::getenv(variable)) patterns.push_back(std::string(toolkit) + "/lib64");
  }
  patterns.insert(patterns.end(), {"/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64"});
  std::vector<std::string> found = {kName};
  char* program = realpath("/proc/self/exe", nullptr);
  if (program != nullptr) {
    const std::string folder = std::string(program).substr(0, std::string(program).rfind('/'));
    found.push_back(folder + "/" + kName);
    found.push_back(folder + "/../lib/" + kName);
    found.push_back(folder + "/../cuda/13.0/nvidia/cu13/lib/" + kName);  // `make cuda-toolkit`
    std::free(program);
  }
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (glob((pattern + "/" + kName).c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    }
    globfree(&matches);
  }
  return found;
}

// The library, kept until the program ends, or null.
void* load_library() {
  for (const std::string& place : places()) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

// How far a pointer is aligned, up to 256 bytes.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256u;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// Everything that is fixed for products of one shape.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weights = nullptr, input = nullptr, output = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool served = false;
};
using Shape = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, bool,
                         bool, std::uint32_t, std::uint32_t>;

class CublasLt : public LibraryProducts {
 public:
  CublasLt(const Device& device, ElementType type, const Functions& functions, cublasLtHandle_t handle,
           Memory workspace)
      : device_(device),
        element_(type == ElementType::kHalf ? CUDA_R_16F : CUDA_R_16BF),
        functions_(functions),
        handle_(handle),
        workspace_(std::move(workspace)) {}
  ~CublasLt() override {
    forget();
    functions_.destroy(handle_);
  }

  bool serves(const LibraryProduct& product) override { return plan_of(product).served; }

  Status multiply(const LibraryProduct& product, Stream& stream) override {
    if (device_.lost()) return {};
    const Plan& plan = plan_of(product);
    const float one = 1, beta = product.added ? 1 : 0;
    const cublasStatus_t status = functions_.matmul(
        handle_, plan.operation, &one, product.weights, plan.weights, product.input, plan.input, &beta,
        product.output, plan.output, product.output, plan.output, &plan.algorithm, workspace_.data(),
        workspace_.size(), static_cast<cudaStream_t>(stream.native()));
    if (status == CUBLAS_STATUS_SUCCESS) return {};
    return internal_error(fmt::format("cuBLASLt failed a product: status {}", int{status}));
  }

 private:
  // Asked of the library once for each shape.
  const Plan& plan_of(const LibraryProduct& p) {
    const Shape shape{p.outputs,
                      p.columns,
                      p.rows,
                      p.input_stride,
                      p.output_stride,
                      p.floats,
                      p.added,
                      alignment_of(p.input),
                      alignment_of(p.output)};
    const auto known = plans_.find(shape);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= kPlansMax) forget();
    Plan& plan = plans_[shape];
    plan.served = make(p, plan);
    return plan;
  }

  // The library's matrices are column-major: output^T [outputs][rows] = weights^T^T * input^T.
  bool make(const LibraryProduct& p, Plan& plan) const {
    const cudaDataType_t output = p.floats ? CUDA_R_32F : element_;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto good = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
    if (!good(functions_.create_operation(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
        !good(functions_.set_operation(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof(transposed))) ||
        !good(functions_.create_layout(&plan.weights, element_, p.columns, p.outputs, p.columns)) ||
        !good(functions_.create_layout(&plan.input, element_, p.columns, p.rows, p.input_stride)) ||
        !good(functions_.create_layout(&plan.output, output, p.outputs, p.rows, p.output_stride))) {
      return false;
    }
    cublasLtMatmulPreference_t preference = nullptr;
    if (!good(functions_.create_preference(&preference))) return false;
    const std::uint32_t weights_aligned = alignment_of(p.weights), input_aligned = alignment_of(p.input),
                        output_aligned = alignment_of(p.output);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return good(functions_.set_preference(preference, attribute, &value, sizeof(value)));
    };
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const bool set = prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes) &&
                     prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, weights_aligned) &&
                     prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, input_aligned) &&
                     prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, output_aligned) &&
                     prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, output_aligned);
    const bool answered =
        set && good(functions_.heuristic(handle_, plan.operation, plan.weights, plan.input, plan.output,
                                         plan.output, preference, 1, &result, &found));
    functions_.destroy_preference(preference);
    plan.algorithm = result.algo;
    return answered && found > 0 && good(result.state);
  }

  void forget() {
    for (auto& [shape, plan] : plans_) {
      if (plan.output != nullptr) functions_.destroy_layout(plan.output);
      if (plan.input != nullptr) functions_.destroy_layout(plan.input);
      if (plan.weights != nullptr) functions_.destroy_layout(plan.weights);
      if (plan.operation != nullptr) functions_.destroy_operation(plan.operation);
    }
    plans_.clear();
  }

  const Device& device_;
  const cudaDataType_t element_;
  const Functions functions_;
  const cublasLtHandle_t handle_;
  const Memory workspace_;
  std::map<Shape, Plan> plans_;
};

}  // namespace

std::unique_ptr<LibraryProducts> LibraryProducts::open(const Device& device, ElementType type,
                                                       std::string& about) {
  void* const library = load_library();
  if (library == nullptr) {
    about = fmt::format(
        "own kernels: no {} by the loader, beside the program, in a Python environment of PATH "
        "(pip install nvidia-cublas), in CUDA_HOME or in /usr/local/cuda",
        kName);
    return nullptr;
  }
  Functions functions{};
  cublasLtHandle_t handle = nullptr;
  if (!functions.find(library) || functions.create(&handle) != CUBLAS_STATUS_SUCCESS) {
    about = fmt::format("own kernels: {} was found but does not start", kName);
    return nullptr;
  }
  Result<Memory> workspace =
      Memory::allocate(device, MemoryKind::kDevice, kWorkspaceBytes, "the workspace of cuBLASLt");
  if (!workspace.ok()) {
    functions.destroy(handle);
    about = "own kernels: " + workspace.status().message();
    return nullptr;
  }
  const std::size_t version = functions.version();
  about = fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return std::make_unique<CublasLt>(device, type, functions, handle, std::move(workspace).value());
}

}  // namespace loci::cuda
