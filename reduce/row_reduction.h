#pragma once

#include <cstdint>

namespace lamina {

// The rule of each: reduce/reduce_rows.h.
enum class RowReduction : uint8_t {
  kSum,
  kSumOfSquares,
  kMean,
  kMax,
  kAbsMax,
  kArgMax,
};
constexpr const char* Name(RowReduction reduction) {
  switch (reduction) {
    case RowReduction::kSum:
      return "sum";
    case RowReduction::kSumOfSquares:
      return "sum_of_squares";
    case RowReduction::kMean:
      return "mean";
    case RowReduction::kMax:
      return "max";
    case RowReduction::kAbsMax:
      return "absmax";
    case RowReduction::kArgMax:
      return "argmax";
  }
  return "invalid";
}

}  // namespace lamina
