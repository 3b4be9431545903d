#pragma once

// The rule of decode_attention.h as plain loops over one token and head, and
// the same mathematics in double.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lamina/core/canonical_sum.h"
#include "lamina/core/elementary.h"

namespace lamina::testing {

// key(j) and value(j): pointers to head_dim floats (the decoded codes) of
// position j.
struct AttentionProblem {
  std::vector<float> q;
  int64_t first = 0, last = 0;
  float scale = 0, k_scale = 1, v_scale = 1;
};

template <class Key, class Value>
std::vector<float> AttentionModel(const AttentionProblem& problem, Key&& key,
                                  Value&& value) {
  constexpr int64_t kChunk = 256;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t dims = static_cast<int64_t>(problem.q.size());
  const float factor = problem.scale * problem.k_scale;
  const auto finite_base = [](float m) { return m == -kInfinity ? 0.0f : m; };

  float m = 0, l = 0;
  std::vector<float> o;
  for (int64_t origin = problem.first / kChunk * kChunk; origin <= problem.last;
       origin += kChunk) {
    const int64_t begin = std::max(problem.first, origin);
    const int64_t end = std::min(problem.last + 1, origin + kChunk);
    std::vector<float> p(kChunk, 0.0f);
    float chunk_m = -kInfinity;
    for (int64_t j = begin; j < end; ++j) {
      float slot[16] = {};
      for (int64_t k = 0; k < (dims + 15) / 16 * 16; ++k) {
        slot[k % 16] = k < dims
                           ? std::fma(problem.q[k], key(j)[k], slot[k % 16])
                           : std::fma(0.0f, 0.0f, slot[k % 16]);
      }
      for (int64_t step = 8; step > 0; step /= 2) {
        for (int64_t i = 0; i < step; ++i) slot[i] = slot[i] + slot[i + step];
      }
      const float s = slot[0] * factor;
      p[j - origin] = s;
      if (s > chunk_m) chunk_m = s;
    }
    std::vector<float> chunk_o(problem.q.size(), 0.0f);
    for (int64_t j = begin; j < end; ++j) {
      p[j - origin] = Exp(p[j - origin] - finite_base(chunk_m));
      for (int64_t k = 0; k < dims; ++k) {
        chunk_o[k] = std::fma(p[j - origin], value(j)[k], chunk_o[k]);
      }
    }
    const float chunk_l = CanonicalSum(kChunk, [&](int64_t i) { return p[i]; });
    if (o.empty()) {
      m = chunk_m;
      l = chunk_l;
      o = chunk_o;
      continue;
    }
    const float max = std::max(m, chunk_m);
    const float a = Exp(m - finite_base(max));
    const float b = Exp(chunk_m - finite_base(max));
    l = l * a + chunk_l * b;
    for (int64_t k = 0; k < dims; ++k) o[k] = o[k] * a + chunk_o[k] * b;
    m = max;
  }
  for (float& x : o) x = x / l * problem.v_scale;
  return o;
}

template <class Key, class Value>
std::vector<double> AttentionReference(const AttentionProblem& problem,
                                       Key&& key, Value&& value) {
  const int64_t dims = static_cast<int64_t>(problem.q.size());
  std::vector<double> s;
  for (int64_t j = problem.first; j <= problem.last; ++j) {
    double dot = 0;
    for (int64_t k = 0; k < dims; ++k) {
      dot += static_cast<double>(problem.q[k]) * key(j)[k];
    }
    s.push_back(dot * problem.scale * problem.k_scale);
  }
  const double max = *std::max_element(s.begin(), s.end());
  double sum = 0;
  std::vector<double> y(problem.q.size(), 0.0);
  for (size_t i = 0; i < s.size(); ++i) {
    const double p = std::exp(s[i] - max);
    sum += p;
    for (int64_t k = 0; k < dims; ++k) {
      y[k] += p * value(problem.first + static_cast<int64_t>(i))[k];
    }
  }
  for (double& x : y) x = x / sum * problem.v_scale;
  return y;
}

}  // namespace lamina::testing
