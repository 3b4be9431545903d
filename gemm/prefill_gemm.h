#pragma once

// What SkinnyGemm on a GPU may use for more than 64 rows of x (prefill), whose
// limit is arithmetic and not the reading of w: a vendor's library.
//
//   absl::StatusOr<std::unique_ptr<PrefillGemm>> library =
//       LoadCublasLt(Device{Backend::kCuda, 0});
//   SkinnyGemmArgs args = {};
//   args.prefill = library.ok() ? library->get() : nullptr;
//
// Without one, SkinnyGemm takes 64 rows at a time; with one as well, where it
// does not take the problem: types other than those below, scales of blocks,
// rows of x or w that do not begin at multiples of 16 bytes. The rest of the
// contract is SkinnyGemm's, but for the bits: they are the library's, the same
// in every run of one version on one kind of GPU, and may depend on m.
//
// Not an operator: the first call with sizes that it has not seen allocates. Of
// one host thread at a time.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"

namespace lamina {

// out[m, n] = x[m, k] · w[n, k]ᵀ, summed in fp32 and times the scales, of which
// there are both or none. Pitches count elements.
struct PrefillProblem {
  const void* x = nullptr;
  const void* w = nullptr;
  void* out = nullptr;
  int64_t x_pitch = 0;
  int64_t w_pitch = 0;
  int64_t out_pitch = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType type = DType::kBF16;     // of x and w: f16, bf16 or f8e4m3fn
  DType out_type = DType::kF32;  // f32, f16 or bf16
  const float* x_scale = nullptr;
  const float* w_scale = nullptr;
  void* workspace = nullptr;  // PrefillGemm::kWorkspaceBytes, aligned to 256
};

class PrefillGemm {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  virtual ~PrefillGemm() = default;
  virtual std::string name() const = 0;  // "cuBLASLt 13.1.0"
  // Unimplemented: SkinnyGemm's own kernels take it.
  virtual absl::Status Run(const PrefillProblem& problem,
                           const Stream& stream) = 0;
};

// libcublasLt is looked for now, not when the program is linked. Unavailable:
// there is none, or this build knows none (no CUDA, or no cublasLt.h).
[[nodiscard]] absl::StatusOr<std::unique_ptr<PrefillGemm>> LoadCublasLt(
    Device device);

}  // namespace lamina
