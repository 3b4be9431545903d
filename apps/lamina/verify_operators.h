#pragma once

// Every operator on random data against a plain double-precision reference.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lamina/core/stream.h"

namespace lamina::cli {

// Errors are counted in units in the last place (ULP) of the output type at
// the exact value, or at the size of the terms that were added where a result
// near zero is a difference of large ones.
inline constexpr std::array<double, 6> kUlpBounds = {0.5, 1, 2, 4, 16, 64};

struct VerifyResult {
  std::string op;
  std::string types;
  int64_t count = 0;
  // Errors up to kUlpBounds[i]; the last entry: more than all of them.
  std::array<int64_t, kUlpBounds.size() + 1> histogram{};
  double worst_ulp = 0;
  int64_t worst_index = -1;
  double worst_got = 0, worst_want = 0;
  double allowed_ulp = 0;
  bool ok() const { return count > 0 && worst_ulp <= allowed_ulp; }
};

// The names that `op` of VerifyOperators may have.
std::vector<std::string> VerifiableOperators();

// One result for each operator and combination of types; all operators when
// `op` is empty. InvalidArgument for an unknown name.
absl::StatusOr<std::vector<VerifyResult>> VerifyOperators(const std::string& op,
                                                          uint64_t seed,
                                                          const Stream& stream);

}  // namespace lamina::cli
