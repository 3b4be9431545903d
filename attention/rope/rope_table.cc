#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/attention/rope.h"
#include "lamina/core/status.h"

namespace lamina {
namespace {

constexpr const char* kOp = "FillRopeTable";

absl::Status CheckPositive(const char* argument, double given) {
  if (std::isfinite(given) && given > 0) return absl::OkStatus();
  return InvalidArgument(kOp, argument, absl::StrCat(given), "finite and > 0");
}

absl::Status Validate(const RopeFrequencies& f, const MatrixView& table) {
  if (f.rotary_dim < 2 || f.rotary_dim % 2 != 0) {
    return InvalidArgument(kOp, "rotary_dim", f.rotary_dim, "even and >= 2");
  }
  LAMINA_RETURN_IF_ERROR(CheckPositive("theta", f.theta));
  LAMINA_RETURN_IF_ERROR(CheckPositive("factor", f.factor));
  if (f.factor != 1.0) {
    LAMINA_RETURN_IF_ERROR(CheckPositive("low_freq_factor", f.low_freq_factor));
    LAMINA_RETURN_IF_ERROR(
        CheckPositive("original_max_position", f.original_max_position));
    if (!std::isfinite(f.high_freq_factor) ||
        f.high_freq_factor <= f.low_freq_factor) {
      return InvalidArgument(
          kOp, "high_freq_factor", absl::StrCat(f.high_freq_factor),
          absl::StrCat("> ", f.low_freq_factor, " (low_freq_factor)"));
    }
  }
  if (f.divisors.has_value()) {
    LAMINA_RETURN_IF_ERROR(
        CheckVector(kOp, "divisors", f.divisors, f.rotary_dim / 2));
    LAMINA_RETURN_IF_ERROR(
        CheckDType(kOp, "divisors", f.divisors.dtype, DType::kF32));
    const float* divisors = static_cast<const float*>(f.divisors.data);
    for (int64_t i = 0; i < f.divisors.size; ++i) {
      LAMINA_RETURN_IF_ERROR(CheckPositive(
          absl::StrCat("divisors[", i, "]").c_str(), divisors[i]));
    }
  }
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "table", table, 1, table.rows, f.rotary_dim));
  return CheckDType(kOp, "table", table.dtype, DType::kF32);
}

double ScaleAsLlama3(const RopeFrequencies& f, double inv_freq) {
  const double wavelength = 2.0 * std::numbers::pi / inv_freq;
  const double periods = f.original_max_position / wavelength;
  if (periods > f.high_freq_factor) return inv_freq;
  if (periods < f.low_freq_factor) return inv_freq / f.factor;
  const double smooth =
      (periods - f.low_freq_factor) / (f.high_freq_factor - f.low_freq_factor);
  return (1.0 - smooth) * inv_freq / f.factor + smooth * inv_freq;
}

}  // namespace

absl::Status FillRopeTable(const RopeFrequencies& frequencies,
                           MatrixView table) {
  const RopeFrequencies& f = frequencies;
  LAMINA_RETURN_IF_ERROR(Validate(f, table));
  const int64_t half = f.rotary_dim / 2;
  std::vector<double> inv_freq(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    double value = std::pow(f.theta, -2.0 * static_cast<double>(i) /
                                         static_cast<double>(f.rotary_dim));
    if (f.factor != 1.0) value = ScaleAsLlama3(f, value);
    if (f.divisors.has_value()) {
      value /= static_cast<const float*>(f.divisors.data)[i];
    }
    inv_freq[static_cast<size_t>(i)] = value;
  }
  for (int64_t p = 0; p < table.rows; ++p) {
    float* row = table.Row<float>(p);
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * inv_freq[static_cast<size_t>(i)];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return absl::OkStatus();
}

}  // namespace lamina
