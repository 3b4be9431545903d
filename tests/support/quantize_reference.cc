#include "tests/support/quantize_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lamina/core/dispatch.h"
#include "lamina/core/float16.h"

namespace lamina::testing {
namespace {

struct Group {
  int64_t row_begin, row_end, col_begin, col_end;
};

std::vector<Group> GroupsOf(const ConstScaleView& scales, int64_t rows,
                            int64_t cols) {
  int64_t group_rows = std::max<int64_t>(rows, 1);
  int64_t group_cols = std::max<int64_t>(cols, 1);
  switch (scales.granularity) {
    case ScaleGranularity::kPerTensor:
      break;
    case ScaleGranularity::kPerRow:
      group_rows = 1;
      break;
    case ScaleGranularity::kPerBlock:
      group_rows = 1;
      group_cols = scales.block_cols;
      break;
    case ScaleGranularity::kPerTile:
      group_rows = scales.block_rows;
      group_cols = scales.block_cols;
      break;
  }
  std::vector<Group> groups;
  for (int64_t r = 0; r < rows; r += group_rows) {
    for (int64_t c = 0; c < cols; c += group_cols) {
      groups.push_back({r, std::min(rows, r + group_rows), c,
                        std::min(cols, c + group_cols)});
    }
  }
  return groups;
}

template <class Code>
void Quantize(const std::vector<float>& values, const QuantizedOutput& out) {
  const int64_t cols = out.codes.cols;
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::is_same_v<Code, int8_t>
                            ? 127.0f
                            : ToFloat(FromFloat<Code>(infinity));
  const float qmax = out.qmax == 0 ? largest : out.qmax;
  for (const Group& group :
       GroupsOf(out.scales, out.codes.total_rows(), cols)) {
    const auto for_each = [&](auto&& body) {
      for (int64_t r = group.row_begin; r < group.row_end; ++r) {
        for (int64_t c = group.col_begin; c < group.col_end; ++c) {
          body(r, c, values[static_cast<size_t>(r * cols + c)]);
        }
      }
    };
    if (out.dynamic) {
      float amax = 0;
      for_each([&](int64_t, int64_t, float v) {
        if (std::isfinite(v)) amax = std::max(amax, std::fabs(v));
      });
      if (out.scale_ub.has_value()) amax = std::min(amax, *out.scale_ub);
      const float scale = std::max(amax / qmax, 1.0f / (qmax * 512.0f));
      StoreScale(out.scales, group.row_begin, group.col_begin, scale);
    }
    const float inverse =
        1.0f / LoadScale(out.scales, group.row_begin, group.col_begin);
    for_each([&](int64_t r, int64_t c, float v) {
      float scaled = v * inverse;
      if (out.dynamic && scaled > qmax) scaled = qmax;
      if (out.dynamic && scaled < -qmax) scaled = -qmax;
      out.codes.Row<Code>(r)[c] = FromFloat<Code>(scaled);
    });
  }
}

}  // namespace

float RoundToType(float value, DType type) {
  switch (type) {
    case DType::kBF16:
      return ToFloat(FromFloat<BF16>(value));
    case DType::kF16:
      return ToFloat(FromFloat<F16>(value));
    default:
      return value;
  }
}

float ElementAsFloat(const ConstMatrixView& matrix, int64_t row, int64_t col) {
  using ValueTable = Table<Types<float>, Types<F16>, Types<BF16>>;
  float value = std::numeric_limits<float>::quiet_NaN();
  const auto read = [&]<class T>(Types<T>) {
    value = ToFloat(matrix.Row<T>(row)[col]);
  };
  const std::array type{matrix.dtype};
  if (!Dispatch(ValueTable{}, type, read)) Dispatch(CodeTable{}, type, read);
  return value;
}

void QuantizeReference(const std::vector<float>& values, DType round_type,
                       const QuantizedOutput& out) {
  std::vector<float> rounded = values;
  if (out.round_before_quant) {
    for (float& value : rounded) value = RoundToType(value, round_type);
  }
  Dispatch(CodeTable{}, std::array{out.codes.dtype},
           [&]<class Code>(Types<Code>) { Quantize<Code>(rounded, out); });
}

}  // namespace lamina::testing
