// PrefillGemm by cuBLASLt, loaded when it is asked for.

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lamina/core/device/cuda/device_guard.h"
#include "lamina/core/status.h"
#include "lamina/gemm/prefill_gemm.h"

namespace lamina {
namespace {

absl::Status ToStatus(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat("cuBLASLt: status ", status);
  return status == CUBLAS_STATUS_NOT_SUPPORTED
             ? absl::UnimplementedError(message)
             : absl::InternalError(message);
}

cudaDataType ToDataType(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF8E4M3Fn:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_16BF;
  }
}

// The functions that are used of the library, which stays loaded.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) create_desc;
  decltype(&cublasLtMatmulDescDestroy) destroy_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
};

absl::StatusOr<Library> Open() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  void* const opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "cuBLASLt: ", dlerror(), "; SkinnyGemm takes 64 rows at a time"));
  }
  Library library = {};
  const char* missing = nullptr;
  const auto find = [&]<class Function>(const char* symbol,
                                        Function& function) {
    function = reinterpret_cast<Function>(dlsym(opened, symbol));
    if (function == nullptr) missing = symbol;
  };
  find("cublasLtCreate", library.create);
  find("cublasLtDestroy", library.destroy);
  find("cublasLtGetVersion", library.version);
  find("cublasLtMatmulDescCreate", library.create_desc);
  find("cublasLtMatmulDescDestroy", library.destroy_desc);
  find("cublasLtMatmulDescSetAttribute", library.set_desc);
  find("cublasLtMatrixLayoutCreate", library.create_layout);
  find("cublasLtMatrixLayoutDestroy", library.destroy_layout);
  find("cublasLtMatmulPreferenceCreate", library.create_preference);
  find("cublasLtMatmulPreferenceDestroy", library.destroy_preference);
  find("cublasLtMatmulPreferenceSetAttribute", library.set_preference);
  find("cublasLtMatmulAlgoGetHeuristic", library.heuristic);
  find("cublasLtMatmul", library.matmul);
  if (missing == nullptr) return library;
  return absl::UnavailableError(
      absl::StrCat("cuBLASLt: ", name, " has no ", missing));
}

// Descriptors and the algorithm for one shape. Column-major for cuBLASLt:
// outᵀ [n, m] = (wᵀ)ᵀ · xᵀ, where wᵀ is [k, n].
class Plan {
 public:
  static absl::StatusOr<std::unique_ptr<Plan>> Create(
      const Library& library, cublasLtHandle_t handle,
      const PrefillProblem& problem) {
    auto plan = std::unique_ptr<Plan>(new Plan(library));
    LAMINA_RETURN_IF_ERROR(plan->Describe(problem));
    LAMINA_RETURN_IF_ERROR(plan->Choose(handle));
    return plan;
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (const cublasLtMatrixLayout_t layout : {w_, x_, out_}) {
      if (layout != nullptr) library_.destroy_layout(layout);
    }
    if (desc_ != nullptr) library_.destroy_desc(desc_);
    if (preference_ != nullptr) library_.destroy_preference(preference_);
  }

  absl::Status Run(cublasLtHandle_t handle, const PrefillProblem& problem,
                   const Stream& stream) {
    LAMINA_RETURN_IF_ERROR(SetScales(problem));
    const float one = 1.0f;
    const float zero = 0.0f;
    return ToStatus(library_.matmul(
        handle, desc_, &one, problem.w, w_, problem.x, x_, &zero, problem.out,
        out_, problem.out, out_, &algorithm_, problem.workspace,
        static_cast<size_t>(PrefillGemm::kWorkspaceBytes),
        static_cast<cudaStream_t>(stream.handle())));
  }

 private:
  explicit Plan(const Library& library) : library_(library) {}

  template <class T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return ToStatus(library_.set_desc(desc_, attribute, &value, sizeof(value)));
  }
  template <class T>
  absl::Status Prefer(cublasLtMatmulPreferenceAttributes_t attribute,
                      const T& value) {
    return ToStatus(
        library_.set_preference(preference_, attribute, &value, sizeof(value)));
  }

  absl::Status SetScales(const PrefillProblem& problem) {
    if (problem.x_scale == nullptr) return absl::OkStatus();
    LAMINA_RETURN_IF_ERROR(
        Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, problem.w_scale));
    return Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, problem.x_scale);
  }

  absl::Status Describe(const PrefillProblem& problem) {
    const auto m = static_cast<uint64_t>(problem.m);
    const auto n = static_cast<uint64_t>(problem.n);
    const auto k = static_cast<uint64_t>(problem.k);
    const cudaDataType type = ToDataType(problem.type);
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_desc(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    LAMINA_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
    LAMINA_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N));
    LAMINA_RETURN_IF_ERROR(SetScales(problem));
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_layout(&w_, type, k, n, problem.w_pitch)));
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_layout(&x_, type, k, m, problem.x_pitch)));
    return ToStatus(library_.create_layout(&out_, ToDataType(problem.out_type),
                                           n, m, problem.out_pitch));
  }

  absl::Status Choose(cublasLtHandle_t handle) {
    LAMINA_RETURN_IF_ERROR(ToStatus(library_.create_preference(&preference_)));
    LAMINA_RETURN_IF_ERROR(
        Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
               static_cast<size_t>(PrefillGemm::kWorkspaceBytes)));
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      LAMINA_RETURN_IF_ERROR(Prefer(attribute, uint32_t{16}));
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    LAMINA_RETURN_IF_ERROR(ToStatus(library_.heuristic(
        handle, desc_, w_, x_, out_, out_, preference_, 1, &result, &count)));
    if (count == 0) return absl::UnimplementedError("cuBLASLt: no algorithm");
    algorithm_ = result.algo;
    return absl::OkStatus();
  }

  const Library& library_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class CublasLt : public PrefillGemm {
 public:
  CublasLt(const Library& library, int device)
      : library_(library), device_(device) {}
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt() override {
    plans_.clear();
    if (handle_ != nullptr) library_.destroy(handle_);
  }
  absl::Status Init() {
    const gpu::DeviceGuard guard(device_);
    return ToStatus(library_.create(&handle_));
  }

  std::string name() const override {
    const size_t version = library_.version();
    return absl::StrCat("cuBLASLt ", version / 10000, ".", version / 100 % 100,
                        ".", version % 100);
  }

  absl::Status Run(const PrefillProblem& problem,
                   const Stream& stream) override {
    if (stream.device().index != device_) {
      return absl::InvalidArgumentError(
          absl::StrCat("cuBLASLt: loaded for device ", device_,
                       ", the stream is of device ", stream.device().index));
    }
    const gpu::DeviceGuard guard(device_);
    std::unique_ptr<Plan>& plan = plans_[KeyOf(problem)];
    if (plan == nullptr) {
      LAMINA_ASSIGN_OR_RETURN(plan, Plan::Create(library_, handle_, problem));
    }
    return plan->Run(handle_, problem, stream);
  }

 private:
  using Key = std::array<int64_t, 9>;
  static Key KeyOf(const PrefillProblem& problem) {
    return {problem.m,
            problem.n,
            problem.k,
            problem.x_pitch,
            problem.w_pitch,
            problem.out_pitch,
            static_cast<int64_t>(problem.type),
            static_cast<int64_t>(problem.out_type),
            problem.x_scale != nullptr};
  }

  Library library_;
  int device_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PrefillGemm>> LoadCublasLt(Device device) {
  if (device.backend != Backend::kCuda) {
    return absl::UnavailableError(
        absl::StrCat("cuBLASLt: not for ", Name(device.backend)));
  }
  LAMINA_ASSIGN_OR_RETURN(const Library library, Open());
  auto gemm = std::make_unique<CublasLt>(library, device.index);
  LAMINA_RETURN_IF_ERROR(gemm->Init());
  return gemm;
}

}  // namespace lamina
