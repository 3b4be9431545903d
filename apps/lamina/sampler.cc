#include "apps/lamina/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lamina::cli {

int32_t Sampler::Sample(absl::Span<const float> logits) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature_ <= 0) {
    return static_cast<int32_t>(largest - logits.begin());
  }
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  // Ties are broken by the id, so that the order is the same everywhere.
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)];
    const float y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  weights_.resize(logits.size());
  double total = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const double logit = logits[static_cast<size_t>(order_[i])];
    weights_[i] = std::exp((logit - double{*largest}) / temperature_);
    total += weights_[i];
  }
  double nucleus = 0;
  size_t count = 0;
  while (count < order_.size() && (count == 0 || nucleus < top_p_ * total)) {
    nucleus += weights_[count++];
  }
  const double uniform =
      static_cast<double>(random_() >> 11) * 0x1p-53 * nucleus;
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += weights_[i];
    if (uniform < sum) return order_[i];
  }
  return order_[count - 1];
}

}  // namespace lamina::cli
