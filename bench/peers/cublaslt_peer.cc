#include "bench/peers/cublaslt_peer.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lamina/core/buffer.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/status.h"

namespace lamina::bench {
namespace {

constexpr int kAlgorithms = 8;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// The functions that are used of the library.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) create_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
  cublasLtHandle_t handle;
};

// Null when it cannot be loaded. Loaded once and kept.
const Library* LoadLibrary() {
  static const Library* const library = []() -> const Library* {
    const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
    void* const opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "bench: no cuBLASLt to compare with: %s\n",
                   dlerror());
      return nullptr;
    }
    auto* const found = new Library();
    bool all = true;
    const auto find = [&]<class Function>(const char* symbol,
                                          Function& function) {
      function = reinterpret_cast<Function>(dlsym(opened, symbol));
      all = all && function != nullptr;
    };
    find("cublasLtCreate", found->create);
    find("cublasLtMatmulDescCreate", found->create_desc);
    find("cublasLtMatmulDescSetAttribute", found->set_desc);
    find("cublasLtMatrixLayoutCreate", found->create_layout);
    find("cublasLtMatmulPreferenceCreate", found->create_preference);
    find("cublasLtMatmulPreferenceSetAttribute", found->set_preference);
    find("cublasLtMatmulAlgoGetHeuristic", found->heuristic);
    find("cublasLtMatmul", found->matmul);
    if (!all || found->create(&found->handle) != CUBLAS_STATUS_SUCCESS) {
      std::fprintf(stderr, "bench: %s cannot be used\n", name.c_str());
      return nullptr;
    }
    return found;
  }();
  return library;
}

absl::Status ToStatus(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuBLASLt: status ", status));
}

cudaDataType ToDataType(DType type) {
  switch (type) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF8E4M3Fn:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_16BF;
  }
}

// Column-major for cuBLASLt: yᵀ [n, m] = (wᵀ)ᵀ · xᵀ, where wᵀ is [k, n].
// Descriptors are as many as cases, and never freed.
class Matmul {
 public:
  static absl::StatusOr<std::shared_ptr<Matmul>> Create(
      const Library& library, const CublasLtProblem& problem, Device device) {
    auto matmul = std::shared_ptr<Matmul>(new Matmul(library));
    LAMINA_RETURN_IF_ERROR(matmul->Describe(problem));
    LAMINA_ASSIGN_OR_RETURN(
        matmul->workspace_,
        Buffer::Allocate(device, static_cast<int64_t>(kWorkspaceBytes)));
    return matmul;
  }

  int algorithms() const { return count_; }

  absl::Status Run(int algorithm, const CublasLtOperands& at,
                   const Stream& stream) const {
    const float one = 1.0f;
    const float zero = 0.0f;
    return ToStatus(library_.matmul(
        library_.handle, desc_, &one, at.w, w_, at.x, x_, &zero, at.y, y_, at.y,
        y_, &results_[algorithm].algo, workspace_.data(), kWorkspaceBytes,
        static_cast<cudaStream_t>(stream.handle())));
  }

 private:
  explicit Matmul(const Library& library) : library_(library) {}

  template <class T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return ToStatus(library_.set_desc(desc_, attribute, &value, sizeof(value)));
  }

  absl::Status Describe(const CublasLtProblem& problem) {
    const auto m = static_cast<uint64_t>(problem.m);
    const auto n = static_cast<uint64_t>(problem.n);
    const auto k = static_cast<uint64_t>(problem.k);
    const cudaDataType type = ToDataType(problem.type);
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_desc(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    LAMINA_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
    LAMINA_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N));
    if (IsFp8(problem.type)) {
      LAMINA_RETURN_IF_ERROR(
          Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, problem.w_scale));
      LAMINA_RETURN_IF_ERROR(
          Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, problem.x_scale));
    }
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_layout(&w_, type, k, n, problem.k)));
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_layout(&x_, type, k, m, problem.k)));
    LAMINA_RETURN_IF_ERROR(
        ToStatus(library_.create_layout(&y_, CUDA_R_16BF, n, m, problem.n)));
    cublasLtMatmulPreference_t preference;
    LAMINA_RETURN_IF_ERROR(ToStatus(library_.create_preference(&preference)));
    LAMINA_RETURN_IF_ERROR(ToStatus(library_.set_preference(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
        sizeof(kWorkspaceBytes))));
    return ToStatus(library_.heuristic(library_.handle, desc_, w_, x_, y_, y_,
                                       preference, kAlgorithms, results_,
                                       &count_));
  }

  const Library& library_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr;
  cublasLtMatrixLayout_t y_ = nullptr;
  cublasLtMatmulHeuristicResult_t results_[kAlgorithms] = {};
  int count_ = 0;
  Buffer workspace_;
};

// Microseconds of `calls` calls in a graph, the best of three.
absl::StatusOr<double> TimeInGraph(
    const std::function<absl::Status(int64_t call)>& enqueue, int64_t calls,
    const Stream& stream) {
  LAMINA_RETURN_IF_ERROR(enqueue(0));
  LAMINA_RETURN_IF_ERROR(Synchronize(stream));
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream, [&] {
                            for (int64_t i = 0; i < calls; ++i) {
                              LAMINA_RETURN_IF_ERROR(enqueue(i));
                            }
                            return absl::OkStatus();
                          }));
  LAMINA_RETURN_IF_ERROR(graph.Launch(stream));
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    Event start, end;
    LAMINA_RETURN_IF_ERROR(start.Record(stream));
    LAMINA_RETURN_IF_ERROR(graph.Launch(stream));
    LAMINA_RETURN_IF_ERROR(end.Record(stream));
    LAMINA_ASSIGN_OR_RETURN(const double us, Event::ElapsedMicros(start, end));
    best = i == 0 ? us : std::min(best, us);
  }
  return best;
}

absl::StatusOr<Peer> Fastest(
    const Library& library, const CublasLtProblem& problem, int64_t sets,
    const std::function<CublasLtOperands(int64_t set)>& operands,
    const Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(const std::shared_ptr<Matmul> matmul,
                          Matmul::Create(library, problem, stream.device()));
  int fastest = -1;
  double best_us = 0;
  for (int algorithm = 0; algorithm < matmul->algorithms(); ++algorithm) {
    const absl::StatusOr<double> us = TimeInGraph(
        [&](int64_t call) {
          return matmul->Run(algorithm, operands(call % sets), stream);
        },
        std::max<int64_t>(sets, 8), stream);
    // One that does not run is none.
    if (us.ok() && (fastest < 0 || *us < best_us)) {
      fastest = algorithm;
      best_us = *us;
    }
  }
  if (fastest < 0) return absl::NotFoundError("cuBLASLt: no algorithm");
  return Peer{"cuBLASLt", [=](int64_t set, const Stream& on) {
                return matmul->Run(fastest, operands(set), on);
              }};
}

}  // namespace

std::vector<Peer> CublasLtPeer(
    const CublasLtProblem& problem, int64_t sets,
    const std::function<CublasLtOperands(int64_t set)>& operands,
    const Stream& stream) {
  const Library* const library = LoadLibrary();
  if (library == nullptr) return {};
  const absl::StatusOr<Peer> peer =
      Fastest(*library, problem, sets, operands, stream);
  if (peer.ok()) return {*peer};
  std::fprintf(
      stderr, "bench: m %lld n %lld k %lld: %s\n",
      static_cast<long long>(problem.m), static_cast<long long>(problem.n),
      static_cast<long long>(problem.k), peer.status().ToString().c_str());
  return {};
}

}  // namespace lamina::bench
