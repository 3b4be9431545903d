// Storing rounds to a known storage type or not at all.
#include "lamina/quant/fp8.h"

long double Store(float x) {
  // expected-error: incomplete type 'lamina::FloatConverter<long double>'
  return lamina::FromFloat<long double>(x);
}
