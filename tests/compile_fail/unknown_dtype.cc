// A table of supported types holds storage types of core/dtype.h only.
#include "lamina/core/dispatch.h"

using BadTable = lamina::Table<lamina::Types<float, double>>;

bool Supported() {
  // expected-error: incomplete type 'lamina::DTypeOf<double>'
  return lamina::Dispatch(BadTable{},
                          std::array{lamina::DType::kF32, lamina::DType::kF32},
                          []<class X, class Y>(lamina::Types<X, Y>) {});
}
