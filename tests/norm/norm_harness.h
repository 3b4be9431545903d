#pragma once

// One way to set up any of the three norms, run it on guarded memory and
// compare it with the scalar model of its rule, bit for bit.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"
#include "lamina/quant/scale.h"
#include "tests/support/test_device.h"

namespace lamina::testing {

enum class NormOp { kRmsNorm, kAddRmsNorm, kLayerNorm };
constexpr const char* Name(NormOp op) {
  switch (op) {
    case NormOp::kRmsNorm:
      return "RmsNorm";
    case NormOp::kAddRmsNorm:
      return "AddRmsNorm";
    case NormOp::kLayerNorm:
      return "LayerNorm";
  }
  return "invalid";
}

// The quantised output that a test asks for.
struct QuantizedCase {
  DType code = DType::kF8E4M3Fn;
  DType scale_type = DType::kF32;
  ScaleGranularity granularity = ScaleGranularity::kPerRow;
  int64_t block_cols = 0;
  bool dynamic = true;
  float qmax = 0;
  std::optional<float> scale_ub = {};
  bool round_before_quant = false;
  bool transposed_scales = false;  // column-major, padded
};

struct NormCase {
  NormOp op = NormOp::kRmsNorm;
  DType type = DType::kF32;
  DType weight_type = DType::kF32;
  int64_t batch = 1;
  int64_t rows = 1;
  int64_t cols = 1;
  bool weight = true;
  bool weight_plus_one = false;
  bool bias = true;  // LayerNorm
  float epsilon = 1e-5f;
  // Distance, in elements, from a 64-byte boundary, and extra row pitch.
  int64_t x_offset = 0, x_padding = 0;
  int64_t residual_offset = 0, residual_padding = 0;
  int64_t weight_offset = 0;
  int64_t y_offset = 0, y_padding = 0;
  int64_t codes_offset = 0, codes_padding = 0;
  // Aliasing.
  bool y_is_x = false;
  bool residual_out_is_residual = false;
  bool residual_out_is_x = false;

  bool y = true;
  std::optional<QuantizedCase> quantized = {};
  // Dense values of x and residual; generated from `seed` when empty.
  std::vector<float> x = {};
  std::vector<float> residual = {};
  uint64_t seed = 1;
};

// "bf16_f32".
std::string TypesName(const NormCase& norm_case);

// The bits of everything that a run writes.
struct NormResult {
  std::vector<uint8_t> y, residual_out, codes, scales;
  // The part that rows [begin, begin + 1) of `rows` take.
  NormResult Row(int64_t row, int64_t rows) const;
  friend bool operator==(const NormResult&, const NormResult&) = default;
};

// Runs the case and compares y, the residual, codes and scales with the scalar
// model; guards and padding must be intact. NaN equals NaN, whatever its bits.
::testing::AssertionResult MatchesModel(const NormCase& norm_case,
                                        Stream stream = testing::TestStream(1),
                                        NormResult* result = nullptr);

// The rule in plain loops: v of dense rows z (already rounded).
std::vector<float> NormModel(NormOp op, const std::vector<float>& z,
                             int64_t rows, int64_t cols,
                             const std::vector<float>& weight,
                             bool weight_plus_one,
                             const std::vector<float>& bias, float epsilon);

// Any element as float, by run-time type.
float GetElement(const void* data, DType type, int64_t index);
void SetElement(void* data, DType type, int64_t index, float value);

}  // namespace lamina::testing
