#include "tests/support/random.h"

#include <cmath>

namespace lamina::testing {

uint64_t Random::Bits() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

int64_t Random::Integer(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Bits() %
                                    (static_cast<uint64_t>(high - low) + 1u));
}

float Random::Normal(float mean, float deviation) {
  const double u = 1.0 - Uniform();
  const double v = Uniform();
  return static_cast<float>(mean + deviation * std::sqrt(-2.0 * std::log(u)) *
                                       std::cos(6.283185307179586 * v));
}

}  // namespace lamina::testing
