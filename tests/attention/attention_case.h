#pragma once

// A call of DecodeAttention on caches and queries of normal deviates, and what
// its results have to be.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/attention/decode_attention.h"
#include "lamina/attention/decode_attention/tensor_attention_policy.h"
#include "lamina/core/device.h"
#include "tests/attention/attention_model.h"
#include "tests/attention/attention_testing.h"
#include "tests/support/test_device.h"

namespace lamina::testing {

// Bytes behind the workspace that nobody may touch.
inline constexpr size_t kGuardBytes = 64;

// A call on caches and queries of normal deviates.
struct CaseShape {
  int64_t heads = 1;
  CacheShape cache = {};
  std::vector<int32_t> sequence_ids = {};
  std::vector<int32_t> positions = {};
  int64_t window = 0;
  float scale = 0;
  float k_scale = 1, v_scale = 1;  // FP8
  int64_t q_padding = 0;           // elements after each token's heads
  int64_t y_padding = 0;
  int64_t q_offset = 0;
  int64_t y_offset = 0;
};

template <class T, class C>
class AttentionCase {
 public:
  explicit AttentionCase(const CaseShape& shape, uint64_t seed = 1)
      : shape_(shape),
        tokens_(static_cast<int64_t>(shape.positions.size())),
        row_(shape.heads * shape.cache.head_dim),
        cache_(shape.cache),
        q_(DTypeOf<T>::value, tokens_, row_, row_ + shape.q_padding,
           shape.q_offset),
        y_(DTypeOf<T>::value, tokens_, row_, row_ + shape.y_padding,
           shape.y_offset),
        scales_{shape.k_scale, shape.v_scale} {
    Random random(seed);
    std::vector<int64_t> length(static_cast<size_t>(shape.cache.sequences));
    for (int64_t t = 0; t < tokens_; ++t) {
      int64_t& n = length[static_cast<size_t>(Sequence(t))];
      n = std::max<int64_t>(n, shape.positions[static_cast<size_t>(t)] + 1);
    }
    for (int64_t s = 0; s < shape.cache.sequences; ++s) {
      cache_.FillSequence(s, length[static_cast<size_t>(s)], random);
    }
    q_.Fill(NormalVector<T>(random, tokens_ * row_));
  }

  int64_t Sequence(int64_t t) const {
    return shape_.sequence_ids.empty()
               ? t
               : shape_.sequence_ids[static_cast<size_t>(t)];
  }
  int64_t tokens() const { return tokens_; }
  TestCache<C>& cache() { return cache_; }
  GuardedMatrix& q() { return q_; }
  GuardedMatrix& y() { return y_; }

  MatrixView Heads(const GuardedMatrix& matrix) const {
    MatrixView view = matrix.view();
    view.batch = tokens_;
    view.batch_stride = view.row_stride;
    view.rows = shape_.heads;
    view.cols = view.row_stride = shape_.cache.head_dim;
    return view;
  }
  DecodeAttentionArgs Args(uint8_t workspace_byte = 0xff) {
    const Stream stream = TestStream();
    const absl::StatusOr<int64_t> bytes = DecodeAttentionWorkspaceBytes(
        {.tokens = tokens_,
         .heads = shape_.heads,
         .kv_heads = shape_.cache.kv_heads,
         .head_dim = shape_.cache.head_dim,
         .max_position = shape_.cache.capacity - 1,
         .q_type = DTypeOf<T>::value,
         .kv_type = DTypeOf<C>::value},
        GetDeviceInfo(stream.device()));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    // 0xff: NaN.
    workspace_.assign(static_cast<size_t>(*bytes) + kGuardBytes,
                      workspace_byte);
    DecodeAttentionArgs args = {
        .q = Heads(q_),
        .cache = cache_.view(),
        .sequence_ids =
            shape_.sequence_ids.empty() ? nullptr : shape_.sequence_ids.data(),
        .positions = shape_.positions.data(),
        .max_position = shape_.cache.capacity - 1,
        .window = shape_.window,
        .scale = shape_.scale,
        .y = Heads(y_),
        .workspace = workspace_.data(),
        .workspace_bytes = *bytes};
    if (IsFp8(DTypeOf<C>::value)) {
      args.cache.k_scale = &scales_[0];
      args.cache.v_scale = &scales_[1];
    }
    return args;
  }

  AttentionProblem Problem(int64_t t, int64_t head) {
    AttentionProblem problem;
    for (int64_t d = 0; d < shape_.cache.head_dim; ++d) {
      problem.q.push_back(
          ToFloat(q_.At<T>(t, head * shape_.cache.head_dim + d)));
    }
    problem.last = shape_.positions[static_cast<size_t>(t)];
    problem.first = shape_.window > 0
                        ? std::max<int64_t>(0, problem.last + 1 - shape_.window)
                        : 0;
    problem.scale =
        shape_.scale != 0
            ? shape_.scale
            : static_cast<float>(
                  1.0 / std::sqrt(static_cast<double>(shape_.cache.head_dim)));
    if (IsFp8(DTypeOf<C>::value)) {
      problem.k_scale = shape_.k_scale;
      problem.v_scale = shape_.v_scale;
    }
    return problem;
  }
  // fp32 copies of the keys (or values) that a token and head attend to.
  std::vector<std::vector<float>> Vectors(int64_t t, int64_t head, bool keys) {
    const AttentionProblem problem = Problem(t, head);
    const int64_t kv_head = head / (shape_.heads / shape_.cache.kv_heads);
    std::vector<std::vector<float>> vectors(
        static_cast<size_t>(problem.last + 1));
    for (int64_t j = problem.first; j <= problem.last; ++j) {
      const C* from = keys ? cache_.K(Sequence(t), j, kv_head)
                           : cache_.V(Sequence(t), j, kv_head);
      for (int64_t d = 0; d < shape_.cache.head_dim; ++d) {
        vectors[static_cast<size_t>(j)].push_back(ToFloat(from[d]));
      }
    }
    return vectors;
  }
  template <class Function>
  auto Expect(int64_t t, int64_t head, Function&& function) {
    const auto keys = Vectors(t, head, true);
    const auto values = Vectors(t, head, false);
    return function(
        Problem(t, head),
        [&](int64_t j) { return keys[static_cast<size_t>(j)].data(); },
        [&](int64_t j) { return values[static_cast<size_t>(j)].data(); });
  }

  // y in all tokens, dense, by the rule.
  std::vector<T> Model() {
    std::vector<T> y;
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        const std::vector<float> row =
            Expect(t, h, [](const auto& problem, auto key, auto value) {
              return AttentionModel(problem, key, value);
            });
        for (float x : row) y.push_back(FromFloat<T>(x));
      }
    }
    return y;
  }

  std::vector<T> Run(int threads = 1) {
    return RunWith(Args(), [&](const DecodeAttentionArgs& args) {
      return DecodeAttention(args, TestStream(threads));
    });
  }
  // y of run(args), dense.
  template <class Function>
  std::vector<T> RunWith(const DecodeAttentionArgs& args, Function&& run) {
    y_.Poison();
    const absl::Status status = run(args);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(y_.GuardsIntact());
    for (size_t i = workspace_.size() - kGuardBytes; i < workspace_.size();
         ++i) {
      EXPECT_EQ(workspace_[i], workspace_.back());
    }
    return y_.template Dense<T>();
  }

  // On tensor cores, sums come in another order: against softmax in double.
  void ExpectClose() {
    const std::vector<T> got = Run();
    ASSERT_EQ(FirstDifference(got, Run()), -1) << "second run";
    const float rounding = std::is_same_v<T, BF16> ? 0x1p-8f : 0x1p-11f;
    const int64_t dims = shape_.cache.head_dim;
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        const std::vector<double> want =
            Expect(t, h, [](const auto& problem, auto key, auto value) {
              return AttentionReference(problem, key, value);
            });
        for (int64_t d = 0; d < dims; ++d) {
          const double y = ToFloat(
              got[static_cast<size_t>((t * shape_.heads + h) * dims + d)]);
          const double w = want[static_cast<size_t>(d)];
          // Values are normal deviates: hardly one is above 5.
          ASSERT_LE(std::abs(y - w),
                    std::abs(w) * rounding * 1.01 + 0x1p-15 * 5 * ValueScale())
              << "token " << t << ", head " << h << ", column " << d << ": got "
              << y << ", want " << w;
        }
      }
    }
  }
  float ValueScale() const {
    return IsFp8(DTypeOf<C>::value) ? shape_.v_scale : 1.0f;
  }

  // Every target and several numbers of threads against the rule.
  void ExpectModel() {
    if (attention_internal::IsForTensorCores(Args(), TestStream())) {
      return ExpectClose();
    }
    const std::vector<T> want = Model();
    ForEachTarget([&] {
      for (int threads : ThreadsOfRuns()) {
        const std::vector<T> got = Run(threads);
        const int64_t i = FirstDifference(got, want);
        ASSERT_EQ(i, -1) << "threads " << threads << ", element " << i
                         << ": got " << ToFloat(got[static_cast<size_t>(i)])
                         << ", want " << ToFloat(want[static_cast<size_t>(i)]);
      }
    });
  }

 private:
  CaseShape shape_;
  int64_t tokens_;
  int64_t row_;
  TestCache<C> cache_;
  GuardedMatrix q_;
  GuardedMatrix y_;
  std::vector<float> scales_;  // where a GPU reaches them
  std::vector<uint8_t> workspace_;
};

inline std::vector<int32_t> Rising(int32_t begin, int32_t end) {
  std::vector<int32_t> values;
  for (int32_t i = begin; i < end; ++i) values.push_back(i);
  return values;
}

}  // namespace lamina::testing
