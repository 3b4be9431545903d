#include "tests/norm/norm_harness.h"

#include <cmath>
#include <cstring>

#include "lamina/core/canonical_sum.h"
#include "lamina/core/math.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/layer_norm.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/quant/fp8.h"
#include "tests/support/memory.h"
#include "tests/support/quantize_reference.h"
#include "tests/support/random.h"

namespace lamina::testing {
namespace {

using ElementTypes =
    Table<Types<float>, Types<F16>, Types<BF16>, Types<F8E4M3Fn>, Types<F8E5M2>,
          Types<F8E4M3Fnuz>, Types<F8E5M2Fnuz>, Types<int8_t>, Types<F8E8M0>>;

// A [batch, rows, cols] operand. Matrices of a batch lie one after the other,
// as the heads of a token do; the padding follows each row of heads.
struct Operand {
  Operand(DType type, const NormCase& c, int64_t offset, int64_t padding)
      : memory(type, c.batch > 1 ? c.batch : c.rows,
               c.batch > 1 ? c.rows * c.cols : c.cols,
               (c.batch > 1 ? c.rows * c.cols : c.cols) + padding, offset),
        view(memory.view()) {
    if (c.batch > 1) {
      view.batch = c.batch;
      view.batch_stride = view.row_stride;
      view.rows = c.rows;
      view.cols = c.cols;
      view.row_stride = c.cols;
    }
  }
  float Get(int64_t flat_row, int64_t col) const {
    return GetElement(view.data, view.dtype, Index(flat_row, col));
  }
  void Set(int64_t flat_row, int64_t col, float value) const {
    SetElement(view.data, view.dtype, Index(flat_row, col), value);
  }
  int64_t Index(int64_t flat_row, int64_t col) const {
    return flat_row / view.rows * view.batch_stride +
           flat_row % view.rows * view.row_stride + col;
  }
  void Fill(const std::vector<float>& values) const {
    for (int64_t r = 0; r < view.total_rows(); ++r) {
      for (int64_t c = 0; c < view.cols; ++c) {
        Set(r, c, values[static_cast<size_t>(r * view.cols + c)]);
      }
    }
  }
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t r = 0; r < view.total_rows(); ++r) {
      for (int64_t c = 0; c < view.cols; ++c) values.push_back(Get(r, c));
    }
    return values;
  }
  std::vector<uint8_t> Bytes() const {
    std::vector<uint8_t> bytes;
    const int64_t size = BytesFor(view.dtype, 1);
    for (int64_t r = 0; r < view.total_rows(); ++r) {
      const uint8_t* row =
          static_cast<const uint8_t*>(view.data) + Index(r, 0) * size;
      bytes.insert(bytes.end(), row, row + view.cols * size);
    }
    return bytes;
  }

  GuardedMatrix memory;
  MatrixView view;
};

bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::memcmp(&a, &b, sizeof(a)) == 0;
}

::testing::AssertionResult SameValues(const char* what,
                                      const std::vector<float>& got,
                                      const std::vector<float>& want,
                                      int64_t cols) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (!Same(got[i], want[i])) {
      return ::testing::AssertionFailure()
             << what << " of row " << static_cast<int64_t>(i) / cols
             << ", column " << static_cast<int64_t>(i) % cols << std::hexfloat
             << ": got " << got[i] << ", want " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Scales in guarded memory: a dense grid or a padded transposed one.
struct Scales {
  Scales(const QuantizedCase& q, int64_t rows, int64_t cols)
      : grid_rows(q.granularity == ScaleGranularity::kPerTensor ? 1
                  : q.granularity == ScaleGranularity::kPerTile
                      ? CeilDiv(rows, 128)
                      : rows),
        grid_cols(q.granularity == ScaleGranularity::kPerTensor ||
                          q.granularity == ScaleGranularity::kPerRow
                      ? 1
                      : CeilDiv(cols, q.block_cols)),
        memory(q.scale_type, q.transposed_scales ? grid_cols : grid_rows,
               q.transposed_scales ? grid_rows : grid_cols,
               (q.transposed_scales ? grid_rows : grid_cols) + 3, 1),
        view{
            .data = memory.view().data,
            .dtype = q.scale_type,
            .granularity = q.granularity,
            .block_cols = q.block_cols,
            .block_rows = q.granularity == ScaleGranularity::kPerTile ? 128 : 0,
            .row_stride = q.transposed_scales ? 1 : memory.view().row_stride,
            .col_stride = q.transposed_scales ? memory.view().row_stride : 1} {}
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t r = 0; r < grid_rows; ++r) {
      for (int64_t c = 0; c < grid_cols; ++c) {
        values.push_back(GetElement(view.data, view.dtype,
                                    r * view.row_stride + c * view.col_stride));
      }
    }
    return values;
  }
  void Fill(Random& random) const {
    for (int64_t r = 0; r < grid_rows; ++r) {
      for (int64_t c = 0; c < grid_cols; ++c) {
        SetElement(view.data, view.dtype,
                   r * view.row_stride + c * view.col_stride,
                   static_cast<float>(random.Uniform(0.002, 0.05)));
      }
    }
  }

  int64_t grid_rows, grid_cols;
  GuardedMatrix memory;
  ScaleView view;
};

std::vector<float> Normals(Random& random, DType type, int64_t count,
                           float deviation, float mean) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(RoundToType(random.Normal(mean, deviation), type));
  }
  return values;
}

}  // namespace

float GetElement(const void* data, DType type, int64_t index) {
  float value = 0;
  Dispatch(ElementTypes{}, std::array{type}, [&]<class T>(Types<T>) {
    value = ToFloat(static_cast<const T*>(data)[index]);
  });
  return value;
}

void SetElement(void* data, DType type, int64_t index, float value) {
  Dispatch(ElementTypes{}, std::array{type}, [&]<class T>(Types<T>) {
    static_cast<T*>(data)[index] = FromFloat<T>(value);
  });
}

std::string TypesName(const NormCase& norm_case) {
  return std::string(Name(norm_case.type)) + "_" + Name(norm_case.weight_type);
}

std::vector<float> NormModel(NormOp op, const std::vector<float>& z,
                             int64_t rows, int64_t cols,
                             const std::vector<float>& weight,
                             bool weight_plus_one,
                             const std::vector<float>& bias, float epsilon) {
  std::vector<float> result;
  const float n = static_cast<float>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = z.data() + r * cols;
    const bool centered = op == NormOp::kLayerNorm;
    float mean = 0;
    if (centered) {
      mean = CanonicalSum(cols, [&](int64_t i) { return row[i]; }) / n;
    }
    const auto distance = [&](int64_t i) {
      return centered ? row[i] - mean : row[i];
    };
    const float variance =
        CanonicalSum(cols,
                     [&](int64_t i) { return distance(i) * distance(i); }) /
        n;
    const float rstd = 1.0f / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < cols; ++i) {
      const size_t c = static_cast<size_t>(i);
      float v = distance(i) * rstd;
      if (!weight.empty()) {
        v = v * (weight_plus_one ? weight[c] + 1.0f : weight[c]);
      }
      if (!bias.empty()) v = v + bias[c];
      result.push_back(v);
    }
  }
  return result;
}

NormResult NormResult::Row(int64_t row, int64_t rows) const {
  const auto slice = [&](const std::vector<uint8_t>& all) {
    const int64_t size = static_cast<int64_t>(all.size()) / rows;
    return std::vector<uint8_t>(all.begin() + row * size,
                                all.begin() + (row + 1) * size);
  };
  return {slice(y), slice(residual_out), slice(codes), slice(scales)};
}

::testing::AssertionResult MatchesModel(const NormCase& c, Stream stream,
                                        NormResult* result) {
  Random random(c.seed);
  const int64_t rows = c.batch * c.rows;
  const int64_t count = rows * c.cols;
  const bool add = c.op == NormOp::kAddRmsNorm;

  // Operands.
  const Operand x(c.type, c, c.x_offset, c.x_padding);
  const Operand residual(c.type, c, c.residual_offset, c.residual_padding);
  const Operand separate_out(c.type, c, c.y_offset, c.residual_padding);
  const Operand separate_y(c.type, c, c.y_offset, c.y_padding);
  const Operand& residual_out = c.residual_out_is_residual ? residual
                                : c.residual_out_is_x      ? x
                                                           : separate_out;
  const Operand& y = c.y_is_x ? x : separate_y;
  x.Fill(c.x.empty() ? Normals(random, c.type, count, 1.5f, 0.25f) : c.x);
  residual.Fill(c.residual.empty() ? Normals(random, c.type, count, 2.0f, 0.0f)
                                   : c.residual);
  const std::vector<float> x_values = x.Values();
  const std::vector<float> residual_values = residual.Values();

  const GuardedMatrix weight(c.weight_type, 1, c.cols, -1, c.weight_offset);
  const GuardedMatrix bias(c.weight_type, 1, c.cols, -1, c.weight_offset + 1);
  std::vector<float> weight_values, bias_values;
  random = Random(c.seed + 1);  // the same weights for any number of rows
  if (c.weight) {
    weight_values = Normals(random, c.weight_type, c.cols, 0.5f,
                            c.weight_plus_one ? 0.0f : 1.0f);
  }
  if (c.bias && c.op == NormOp::kLayerNorm) {
    bias_values = Normals(random, c.weight_type, c.cols, 0.5f, 0.0f);
  }
  for (int64_t i = 0; i < c.cols; ++i) {
    const size_t at = static_cast<size_t>(i);
    if (!weight_values.empty()) {
      SetElement(weight.view().data, c.weight_type, i, weight_values[at]);
    }
    if (!bias_values.empty()) {
      SetElement(bias.view().data, c.weight_type, i, bias_values[at]);
    }
  }
  const auto vector_of = [&](const GuardedMatrix& memory,
                             const std::vector<float>& values) {
    return values.empty() ? ConstVectorView{}
                          : ConstVectorView{.data = memory.view().data,
                                            .dtype = c.weight_type,
                                            .size = c.cols};
  };

  const QuantizedCase q = c.quantized.value_or(QuantizedCase{});
  const Operand codes(q.code, c, c.codes_offset, c.codes_padding);
  const Operand want_codes(q.code, c, 0, 0);
  const Scales scales(q, rows, c.cols);
  const Scales want_scales(q, rows, c.cols);
  QuantizedOutput quantized{.codes = codes.view,
                            .scales = scales.view,
                            .dynamic = q.dynamic,
                            .qmax = q.qmax,
                            .scale_ub = q.scale_ub,
                            .round_before_quant = q.round_before_quant};
  if (!q.dynamic) {
    Random same = random;
    scales.Fill(same);
    want_scales.Fill(random);
  }
  if (!c.quantized) quantized = {};

  // Run.
  const MatrixView y_view = c.y ? y.view : MatrixView{};
  absl::Status status;
  switch (c.op) {
    case NormOp::kRmsNorm:
      status = RmsNorm({.x = x.view,
                        .weight = vector_of(weight, weight_values),
                        .weight_plus_one = c.weight_plus_one,
                        .epsilon = c.epsilon,
                        .y = y_view,
                        .quantized = quantized},
                       stream);
      break;
    case NormOp::kAddRmsNorm:
      status = AddRmsNorm({.x = x.view,
                           .residual = residual.view,
                           .residual_out = residual_out.view,
                           .weight = vector_of(weight, weight_values),
                           .weight_plus_one = c.weight_plus_one,
                           .epsilon = c.epsilon,
                           .y = y_view,
                           .quantized = quantized},
                          stream);
      break;
    case NormOp::kLayerNorm:
      status = LayerNorm({.x = x.view,
                          .weight = vector_of(weight, weight_values),
                          .bias = vector_of(bias, bias_values),
                          .weight_plus_one = c.weight_plus_one,
                          .epsilon = c.epsilon,
                          .y = y_view,
                          .quantized = quantized},
                         stream);
      break;
  }
  if (!status.ok()) return ::testing::AssertionFailure() << status;

  // Compare.
  std::vector<float> z = x_values;
  if (add) {
    for (size_t i = 0; i < z.size(); ++i) {
      z[i] = RoundToType(x_values[i] + residual_values[i], c.type);
    }
    auto same = SameValues("residual_out", residual_out.Values(), z, c.cols);
    if (!same) return same;
  }
  const std::vector<float> v =
      NormModel(c.op, z, rows, c.cols, weight_values, c.weight_plus_one,
                bias_values, c.epsilon);
  if (c.y) {
    std::vector<float> want;
    for (float value : v) want.push_back(RoundToType(value, c.type));
    auto same = SameValues("y", y.Values(), want, c.cols);
    if (!same) return same;
  }
  if (c.quantized) {
    QuantizedOutput want = quantized;
    want.codes = want_codes.view;
    want.scales = want_scales.view;
    QuantizeReference(v, c.type, want);
    auto same =
        SameValues("scale", scales.Values(), want_scales.Values(), c.cols);
    if (!same) return same;
    same = SameValues("code", codes.Values(), want_codes.Values(), c.cols);
    if (!same) return same;
  }

  // What must not change.
  if (!c.y_is_x && !(add && c.residual_out_is_x)) {
    auto same = SameValues("input x", x.Values(), x_values, c.cols);
    if (!same) return same;
  }
  if (!(add && c.residual_out_is_residual)) {
    auto same = SameValues("input residual", residual.Values(), residual_values,
                           c.cols);
    if (!same) return same;
  }
  for (const GuardedMatrix* memory :
       {&x.memory, &residual.memory, &separate_out.memory, &separate_y.memory,
        &codes.memory, &scales.memory, &weight, &bias}) {
    if (!memory->GuardsIntact()) {
      return ::testing::AssertionFailure() << "wrote beyond an operand of type "
                                           << Name(memory->view().dtype);
    }
  }
  if (result != nullptr) {
    result->y = c.y ? y.Bytes() : std::vector<uint8_t>{};
    result->residual_out = add ? residual_out.Bytes() : std::vector<uint8_t>{};
    result->codes = c.quantized ? codes.Bytes() : std::vector<uint8_t>{};
    result->scales.clear();
    if (c.quantized) {
      const std::vector<float> values = scales.Values();
      result->scales.resize(values.size() * sizeof(float));
      std::memcpy(result->scales.data(), values.data(), result->scales.size());
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lamina::testing
