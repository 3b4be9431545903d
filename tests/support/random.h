#pragma once

// Deterministic test data. The same seed gives the same values everywhere.

#include <cmath>
#include <cstdint>
#include <vector>

#include "lamina/core/float16.h"
#include "lamina/quant/fp8.h"

namespace lamina::testing {

// SplitMix64; normal deviates by Box-Muller.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits();
  double Uniform();  // [0, 1)
  double Uniform(double low, double high) {
    return low + (high - low) * Uniform();
  }
  int64_t Integer(int64_t low, int64_t high);  // [low, high]
  float Normal(float mean = 0.0f, float deviation = 1.0f);

 private:
  uint64_t state_;
};

// `count` normal deviates rounded to T.
template <class T>
std::vector<T> NormalVector(Random& random, int64_t count,
                            float deviation = 1.0f, float mean = 0.0f) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = FromFloat<T>(random.Normal(mean, deviation));
  return values;
}

}  // namespace lamina::testing
