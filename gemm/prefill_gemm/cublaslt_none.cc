#include "absl/status/status.h"
#include "lamina/gemm/prefill_gemm.h"

namespace lamina {

absl::StatusOr<std::unique_ptr<PrefillGemm>> LoadCublasLt(Device) {
  return absl::UnavailableError(
      "cuBLASLt: this build knows none (it needs CUDA and cublasLt.h); "
      "SkinnyGemm takes 64 rows at a time");
}

}  // namespace lamina
