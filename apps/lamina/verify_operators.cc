#include "apps/lamina/verify_operators.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lamina/activation/activation.h"
#include "lamina/activation/gated_activation.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/attention/kv_cache.h"
#include "lamina/attention/rope.h"
#include "lamina/core/buffer.h"
#include "lamina/core/status.h"
#include "lamina/gemm/skinny_gemm.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/layer_norm.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/quant/dequantize.h"
#include "lamina/quant/quantize.h"
#include "lamina/reduce/reduce_rows.h"

namespace lamina::cli {
namespace {

// Odd sizes on purpose: tails are where vector code goes wrong.
constexpr int64_t kRows = 7;
constexpr int64_t kCols = 1229;

template <class T>
constexpr int kMantissaBits = std::is_same_v<T, float>      ? 23
                              : std::is_same_v<T, F16>      ? 10
                              : std::is_same_v<T, BF16>     ? 7
                              : std::is_same_v<T, F8E4M3Fn> ? 3
                                                            : 2;
template <class T>
constexpr int kMinExponent = std::is_same_v<T, F16>        ? -14
                             : std::is_same_v<T, F8E4M3Fn> ? -6
                             : std::is_same_v<T, F8E5M2>   ? -14
                                                           : -126;

template <class T>
double UlpAt(double magnitude) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [.5, 1)
  return std::ldexp(1.0,
                    std::max(exponent - 1, kMinExponent<T>) - kMantissaBits<T>);
}

using Values = std::vector<double>;

class Verifier {
 public:
  Verifier(uint64_t seed, const Stream& stream)
      : random_(seed), stream_(stream) {}

  template <class T>
  std::vector<T> Normal(int64_t count, double deviation = 1) {
    std::normal_distribution<double> normal(0, deviation);
    std::vector<T> values(static_cast<size_t>(count));
    for (T& value : values) {
      value = FromFloat<T>(static_cast<float>(normal(random_)));
    }
    return values;
  }

  // Compares got with want; `terms` (if not empty) holds the size of the terms
  // of each result.
  template <class T>
  void Compare(const char* op, std::string types, const std::vector<T>& got,
               const Values& want, const Values& terms, double allowed) {
    VerifyResult result;
    result.op = op;
    result.types = std::move(types);
    result.allowed_ulp = allowed;
    for (size_t i = 0; i < got.size(); ++i) {
      const double value = ToFloat(got[i]);
      const double size =
          std::max(std::abs(want[i]), terms.empty() ? 0.0 : terms[i]);
      const double error = std::abs(value - want[i]) / UlpAt<T>(size);
      const double ulp = std::isnan(error) ? HUGE_VAL : error;
      const size_t bin = static_cast<size_t>(
          std::lower_bound(kUlpBounds.begin(), kUlpBounds.end(), ulp) -
          kUlpBounds.begin());
      ++result.histogram[bin];
      ++result.count;
      if (result.worst_index < 0 || ulp > result.worst_ulp) {
        result.worst_ulp = ulp;
        result.worst_index = static_cast<int64_t>(i);
        result.worst_got = value;
        result.worst_want = want[i];
      }
    }
    results_.push_back(result);
  }

  const Stream& stream() const { return stream_; }
  std::mt19937_64& random() { return random_; }
  std::vector<VerifyResult> TakeResults() { return std::move(results_); }

 private:
  std::mt19937_64 random_;
  const Stream& stream_;
  std::vector<VerifyResult> results_;
};

template <class T>
const char* TypeName() {
  return Name(DTypeOf<T>::value);
}

template <class T>
absl::Status VerifyReduce(Verifier& v) {
  const auto x = v.Normal<T>(kRows * kCols);
  std::vector<float> y(kRows);
  LAMINA_RETURN_IF_ERROR(ReduceRows({.x = Matrix(x.data(), kRows, kCols),
                                     .reduction = RowReduction::kSumOfSquares,
                                     .y = Vector(y.data(), kRows)},
                                    v.stream()));
  Values want(kRows);
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const double value = ToFloat(x[static_cast<size_t>(i)]);
    want[static_cast<size_t>(i / kCols)] += value * value;
  }
  v.Compare("reduce_rows", absl::StrCat(TypeName<T>(), " -> f32"), y, want, {},
            8);
  return absl::OkStatus();
}

template <class T, class Q>
absl::Status VerifyQuantize(Verifier& v) {
  const auto x = v.Normal<T>(kRows * kCols);
  std::vector<Q> codes(x.size());
  std::vector<float> scales(kRows);
  QuantizedOutput out;
  out.codes = Matrix(codes.data(), kRows, kCols);
  out.scales = PerRow(scales.data());
  out.dynamic = true;
  LAMINA_RETURN_IF_ERROR(
      Quantize({.x = Matrix(x.data(), kRows, kCols), .out = out}, v.stream()));
  Values want(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    want[i] = double{ToFloat(x[i])} / scales[i / kCols];
  }
  // Half a step, and the rounding of the inverse that may tip a tie.
  v.Compare("quantize", absl::StrCat(TypeName<T>(), " -> ", TypeName<Q>()),
            codes, want, {}, 0.501);
  std::vector<T> back(x.size());
  LAMINA_RETURN_IF_ERROR(
      Dequantize({.codes = Matrix(codes.data(), kRows, kCols),
                  .scales = out.scales,
                  .y = Matrix(back.data(), kRows, kCols)},
                 v.stream()));
  for (size_t i = 0; i < x.size(); ++i) {
    want[i] = double{ToFloat(codes[i])} * scales[i / kCols];
  }
  v.Compare("dequantize", absl::StrCat(TypeName<Q>(), " -> ", TypeName<T>()),
            back, want, {}, 0.501);
  return absl::OkStatus();
}

// Double-precision norm of `row`, optionally centred.
Values NormOf(const Values& row, const Values& weight, const Values& bias,
              double epsilon, bool centred) {
  double mean = 0, square = 0;
  const double n = static_cast<double>(row.size());
  if (centred) {
    for (const double value : row) mean += value / n;
  }
  for (const double value : row) square += (value - mean) * (value - mean) / n;
  const double scale = 1 / std::sqrt(square + epsilon);
  Values y(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    y[i] = (row[i] - mean) * scale * weight[i] + (bias.empty() ? 0 : bias[i]);
  }
  return y;
}

template <class T>
Values ToValues(const std::vector<T>& x) {
  Values values(x.size());
  for (size_t i = 0; i < x.size(); ++i) values[i] = ToFloat(x[i]);
  return values;
}

template <class T>
absl::Status VerifyNorms(Verifier& v, const std::string& op) {
  const auto x = v.Normal<T>(kRows * kCols);
  const auto r = v.Normal<T>(kRows * kCols);
  auto w = v.Normal<float>(kCols, 0.1);
  for (float& value : w) value += 1;
  const auto b = v.Normal<float>(kCols, 0.1);
  std::vector<T> y(x.size()), z(x.size());
  const float epsilon = 1e-5f;
  const auto matrix = [](auto& data) {
    return Matrix(data.data(), kRows, kCols);
  };
  const ConstVectorView weight = Vector(w.data(), kCols);
  const ConstVectorView bias = Vector(b.data(), kCols);
  const bool add = op == "add_rms_norm";
  const bool centred = op == "layer_norm";
  if (add) {
    LAMINA_RETURN_IF_ERROR(AddRmsNorm({.x = matrix(x),
                                       .residual = matrix(r),
                                       .residual_out = matrix(z),
                                       .weight = weight,
                                       .epsilon = epsilon,
                                       .y = matrix(y)},
                                      v.stream()));
  } else if (centred) {
    LAMINA_RETURN_IF_ERROR(LayerNorm({.x = matrix(x),
                                      .weight = weight,
                                      .bias = bias,
                                      .epsilon = epsilon,
                                      .y = matrix(y)},
                                     v.stream()));
  } else {
    LAMINA_RETURN_IF_ERROR(RmsNorm(
        {.x = matrix(x), .weight = weight, .epsilon = epsilon, .y = matrix(y)},
        v.stream()));
  }
  Values want, terms;
  for (int64_t row = 0; row < kRows; ++row) {
    Values values(kCols);
    for (int64_t i = 0; i < kCols; ++i) {
      const size_t at = static_cast<size_t>(row * kCols + i);
      values[static_cast<size_t>(i)] = ToFloat(add ? z[at] : x[at]);
    }
    const Values normed =
        NormOf(values, ToValues(w), centred ? ToValues(b) : Values{}, epsilon,
               centred);
    want.insert(want.end(), normed.begin(), normed.end());
  }
  // LayerNorm adds terms of about 1, which may cancel.
  if (centred) terms.assign(want.size(), 1.0);
  const double allowed = std::is_same_v<T, float> ? 8 : 0.51;
  v.Compare(op.c_str(), absl::StrCat(TypeName<T>(), " -> ", TypeName<T>()), y,
            want, terms, allowed);
  if (add) {
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = double{ToFloat(x[i])} + double{ToFloat(r[i])};
    }
    v.Compare("add_rms_norm", absl::StrCat(TypeName<T>(), " residual"), z, want,
              {}, 0.501);
  }
  return absl::OkStatus();
}

double Exactly(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::kGeluTanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kIdentity:
      return x;
  }
  return 0;
}

template <class T>
absl::Status VerifyActivations(Verifier& v, const std::string& op) {
  const struct {
    ActivationKind kind;
    const char* name;
  } kinds[] = {{ActivationKind::kSilu, "silu"},
               {ActivationKind::kGelu, "gelu"},
               {ActivationKind::kGeluTanh, "gelu_tanh"},
               {ActivationKind::kRelu, "relu"}};
  const bool gated = op == "gated_activation";
  const int64_t width = gated ? 2 * kCols : kCols;
  for (const auto& [kind, name] : kinds) {
    const auto x = v.Normal<T>(kRows * width, 2);
    std::vector<T> y(static_cast<size_t>(kRows * kCols));
    const ConstMatrixView in = Matrix(x.data(), kRows, width);
    const MatrixView out = Matrix(y.data(), kRows, kCols);
    Values want(y.size()), terms(y.size());
    if (gated) {
      LAMINA_RETURN_IF_ERROR(GatedActivation(
          {.x = in, .gate = {.kind = kind}, .y = out}, v.stream()));
    } else {
      LAMINA_RETURN_IF_ERROR(
          Activation({.x = in, .kind = kind, .y = out}, v.stream()));
    }
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kCols; ++i) {
        const double gate = ToFloat(x[static_cast<size_t>(row * width + i)]);
        const double up =
            gated ? double{ToFloat(
                        x[static_cast<size_t>(row * width + kCols + i)])}
                  : 1.0;
        const size_t at = static_cast<size_t>(row * kCols + i);
        want[at] = Exactly(kind, gate) * up;
        // The tanh form is a difference for negative x.
        terms[at] =
            kind == ActivationKind::kGeluTanh ? std::abs(0.5 * gate * up) : 0;
      }
    }
    v.Compare(op.c_str(), absl::StrCat(TypeName<T>(), " ", name), y, want,
              terms, std::is_same_v<T, float> ? 16 : 0.6);
  }
  return absl::OkStatus();
}

template <class X, class W>
absl::Status VerifyGemm(Verifier& v) {
  constexpr int64_t kM = 5, kN = 131, kK = 1100;
  const auto x = v.Normal<X>(kM * kK);
  const auto w = v.Normal<W>(kN * kK);
  std::vector<float> scales(kN, 0.25f);
  std::vector<float> y(kM * kN);
  SkinnyGemmArgs args = {.x = Matrix(x.data(), kM, kK),
                         .w = Matrix(w.data(), kN, kK),
                         .y = Matrix(y.data(), kM, kN)};
  const bool scaled = IsFp8(DTypeOf<W>::value);
  if (scaled) args.w_scales = PerRow(static_cast<const float*>(scales.data()));
  LAMINA_ASSIGN_OR_RETURN(
      const int64_t bytes,
      SkinnyGemmWorkspaceBytes({.m = kM,
                                .n = kN,
                                .k = kK,
                                .x_type = DTypeOf<X>::value,
                                .w_type = DTypeOf<W>::value,
                                .y_type = DType::kF32},
                               GetDeviceInfo(v.stream().device()),
                               v.stream().num_threads()));
  LAMINA_ASSIGN_OR_RETURN(const Buffer workspace,
                          Buffer::Allocate(v.stream().device(), bytes));
  args.workspace = workspace.data();
  args.workspace_bytes = bytes;
  LAMINA_RETURN_IF_ERROR(SkinnyGemm(args, v.stream()));
  Values want(y.size()), terms(y.size());
  const double scale = scaled ? 0.25 : 1;
  for (int64_t i = 0; i < kM * kN; ++i) {
    const int64_t row = i / kN, col = i % kN;
    double squares = 0;
    for (int64_t k = 0; k < kK; ++k) {
      const double product =
          double{ToFloat(x[static_cast<size_t>(row * kK + k)])} *
          double{ToFloat(w[static_cast<size_t>(col * kK + k)])} * scale;
      want[static_cast<size_t>(i)] += product;
      squares += product * product;
    }
    terms[static_cast<size_t>(i)] = std::sqrt(squares);
  }
  v.Compare("skinny_gemm",
            absl::StrCat(TypeName<X>(), " x ", TypeName<W>(), " -> f32"), y,
            want, terms, 16);
  return absl::OkStatus();
}

template <class T>
absl::Status VerifyRope(Verifier& v) {
  constexpr int64_t kTokens = 5, kHeads = 3, kDim = 64, kPositions = 4096;
  const RopeFrequencies frequencies = {.theta = 10000.0, .rotary_dim = kDim};
  std::vector<float> table(kPositions * kDim);
  LAMINA_RETURN_IF_ERROR(
      FillRopeTable(frequencies, Matrix(table.data(), kPositions, kDim)));
  const auto x = v.Normal<T>(kTokens * kHeads * kDim);
  std::vector<T> y(x.size());
  const std::vector<int32_t> positions = {0, 1, 77, 2048, 4095};
  LAMINA_RETURN_IF_ERROR(Rope(
      {.x = Heads(x.data(), kTokens, kHeads, kDim),
       .y = Heads(y.data(), kTokens, kHeads, kDim),
       .table =
           Matrix(static_cast<const float*>(table.data()), kPositions, kDim),
       .positions = positions.data()},
      v.stream()));
  Values want(x.size()), terms(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t dim = i % kDim, token = i / (kHeads * kDim);
    const size_t half = kDim / 2, pair = dim % half, start = i - dim;
    const double angle =
        positions[token] *
        std::pow(10000.0, -2.0 * static_cast<double>(pair) / kDim);
    const double a = ToFloat(x[start + pair]);
    const double b = ToFloat(x[start + pair + half]);
    want[i] = dim < half ? a * std::cos(angle) - b * std::sin(angle)
                         : b * std::cos(angle) + a * std::sin(angle);
    terms[i] = std::hypot(a, b);
  }
  v.Compare("rope", absl::StrCat(TypeName<T>(), " -> ", TypeName<T>()), y, want,
            terms, std::is_same_v<T, float> ? 4 : 0.51);
  return absl::OkStatus();
}

template <class T, class Kv>
absl::Status VerifyAttention(Verifier& v, const std::string& op) {
  constexpr int64_t kTokens = 3, kHeads = 6, kKvHeads = 2, kDim = 64;
  constexpr int64_t kCapacity = 700;
  const int64_t kv_count = kTokens * kCapacity * kKvHeads * kDim;
  std::vector<Kv> k(static_cast<size_t>(kv_count)), cache_v(k.size());
  const KvCacheView cache =
      DenseKvCache(k.data(), cache_v.data(), DTypeOf<Kv>::value, kTokens,
                   kCapacity, kKvHeads, kDim);
  // Every cached position of every sequence, appended.
  const auto new_k = v.Normal<T>(kv_count), new_v = v.Normal<T>(kv_count);
  std::vector<int32_t> sequences, positions;
  for (int64_t i = 0; i < kTokens * kCapacity; ++i) {
    sequences.push_back(static_cast<int32_t>(i / kCapacity));
    positions.push_back(static_cast<int32_t>(i % kCapacity));
  }
  LAMINA_RETURN_IF_ERROR(
      KvAppend({.k = Heads(new_k.data(), kTokens * kCapacity, kKvHeads, kDim),
                .v = Heads(new_v.data(), kTokens * kCapacity, kKvHeads, kDim),
                .cache = cache,
                .sequence_ids = sequences.data(),
                .positions = positions.data()},
               v.stream()));
  if (op == "kv_append") {
    v.Compare("kv_append", absl::StrCat(TypeName<T>(), " -> ", TypeName<Kv>()),
              k, ToValues(new_k), {}, 0.501);
    return absl::OkStatus();
  }
  const auto q = v.Normal<T>(kTokens * kHeads * kDim);
  std::vector<T> y(q.size());
  const std::vector<int32_t> at = {0, 333, 699};
  DecodeAttentionArgs args = {.q = Heads(q.data(), kTokens, kHeads, kDim),
                              .cache = cache,
                              .positions = at.data(),
                              .max_position = kCapacity - 1,
                              .y = Heads(y.data(), kTokens, kHeads, kDim)};
  LAMINA_ASSIGN_OR_RETURN(
      const int64_t bytes,
      DecodeAttentionWorkspaceBytes({.tokens = kTokens,
                                     .heads = kHeads,
                                     .kv_heads = kKvHeads,
                                     .head_dim = kDim,
                                     .max_position = kCapacity - 1,
                                     .q_type = DTypeOf<T>::value,
                                     .kv_type = DTypeOf<Kv>::value},
                                    GetDeviceInfo(v.stream().device()),
                                    v.stream().num_threads()));
  LAMINA_ASSIGN_OR_RETURN(const Buffer workspace,
                          Buffer::Allocate(v.stream().device(), bytes));
  args.workspace = workspace.data();
  args.workspace_bytes = bytes;
  LAMINA_RETURN_IF_ERROR(DecodeAttention(args, v.stream()));
  Values want(q.size()), terms(q.size());
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto row = [&](const std::vector<Kv>& from, int64_t p, int64_t d) {
        return double{ToFloat(from[static_cast<size_t>(
            ((t * kCapacity + p) * kKvHeads + h / 3) * kDim + d)])};
      };
      Values scores;
      const size_t start = static_cast<size_t>((t * kHeads + h) * kDim);
      for (int64_t p = 0; p <= at[static_cast<size_t>(t)]; ++p) {
        double dot = 0;
        for (int64_t d = 0; d < kDim; ++d) {
          dot +=
              double{ToFloat(q[start + static_cast<size_t>(d)])} * row(k, p, d);
        }
        scores.push_back(dot / 8);
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - most);
      for (int64_t d = 0; d < kDim; ++d) {
        double& sum = want[start + static_cast<size_t>(d)];
        double& term = terms[start + static_cast<size_t>(d)];
        for (size_t p = 0; p < scores.size(); ++p) {
          const double value =
              scores[p] / total * row(cache_v, static_cast<int64_t>(p), d);
          sum += value;
          term += std::abs(value);
        }
      }
    }
  }
  v.Compare("decode_attention",
            absl::StrCat(TypeName<T>(), ", ", TypeName<Kv>(), " cache"), y,
            want, terms, std::is_same_v<T, float> ? 32 : 0.6);
  return absl::OkStatus();
}

absl::Status VerifyOne(const std::string& op, Verifier& v) {
  if (op == "reduce_rows") {
    LAMINA_RETURN_IF_ERROR(VerifyReduce<float>(v));
    LAMINA_RETURN_IF_ERROR(VerifyReduce<F16>(v));
    return VerifyReduce<BF16>(v);
  }
  if (op == "quantize") {  // and dequantize
    LAMINA_RETURN_IF_ERROR((VerifyQuantize<float, F8E4M3Fn>(v)));
    LAMINA_RETURN_IF_ERROR((VerifyQuantize<BF16, F8E4M3Fn>(v)));
    return VerifyQuantize<BF16, F8E5M2>(v);
  }
  if (op == "rms_norm" || op == "add_rms_norm" || op == "layer_norm") {
    LAMINA_RETURN_IF_ERROR(VerifyNorms<float>(v, op));
    LAMINA_RETURN_IF_ERROR(VerifyNorms<F16>(v, op));
    return VerifyNorms<BF16>(v, op);
  }
  if (op == "activation" || op == "gated_activation") {
    LAMINA_RETURN_IF_ERROR(VerifyActivations<float>(v, op));
    LAMINA_RETURN_IF_ERROR(VerifyActivations<F16>(v, op));
    return VerifyActivations<BF16>(v, op);
  }
  if (op == "skinny_gemm") {
    LAMINA_RETURN_IF_ERROR((VerifyGemm<float, BF16>(v)));
    LAMINA_RETURN_IF_ERROR((VerifyGemm<BF16, BF16>(v)));
    LAMINA_RETURN_IF_ERROR((VerifyGemm<float, F8E4M3Fn>(v)));
    return VerifyGemm<BF16, F8E4M3Fn>(v);
  }
  if (op == "rope") {
    LAMINA_RETURN_IF_ERROR(VerifyRope<float>(v));
    return VerifyRope<BF16>(v);
  }
  LAMINA_RETURN_IF_ERROR((VerifyAttention<float, BF16>(v, op)));
  LAMINA_RETURN_IF_ERROR((VerifyAttention<BF16, BF16>(v, op)));
  return VerifyAttention<float, F8E4M3Fn>(v, op);
}

}  // namespace

std::vector<std::string> VerifiableOperators() {
  return {"reduce_rows", "quantize",   "rms_norm",         "add_rms_norm",
          "layer_norm",  "activation", "gated_activation", "rope",
          "skinny_gemm", "kv_append",  "decode_attention"};
}

absl::StatusOr<std::vector<VerifyResult>> VerifyOperators(
    const std::string& op, uint64_t seed, const Stream& stream) {
  std::vector<std::string> ops = VerifiableOperators();
  if (!op.empty()) {
    if (std::find(ops.begin(), ops.end(), op) == ops.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--op ", op, ": known operators: ", absl::StrJoin(ops, ", ")));
    }
    ops = {op};
  }
  Verifier verifier(seed, stream);
  for (const std::string& name : ops) {
    LAMINA_RETURN_IF_ERROR(VerifyOne(name, verifier));
  }
  return verifier.TakeResults();
}

}  // namespace lamina::cli
