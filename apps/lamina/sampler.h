#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"

namespace lamina::cli {

// Picks the next token from logits. Temperature 0 takes the largest logit (the
// first of equals). Otherwise softmax(logits / temperature), restricted to the
// smallest set of most likely tokens whose probability reaches top_p. The same
// seed gives the same choices.
class Sampler {
 public:
  Sampler(double temperature, double top_p, uint64_t seed)
      : temperature_(temperature), top_p_(top_p), random_(seed) {}
  int32_t Sample(absl::Span<const float> logits);

 private:
  double temperature_;
  double top_p_;
  std::mt19937_64 random_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace lamina::cli
