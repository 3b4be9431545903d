#pragma once

// Typed tables: the list of supported element types of an operator is data
// that the dispatcher, the typed tests, the benchmarks and docs/support.md
// read.
//
//   using RmsNormTable = Table<Types<float, float>, Types<BF16, F8E4M3Fn>>;
//   bool known = Dispatch(RmsNormTable{}, std::array{x_type, y_type},
//                         [&]<class X, class Y>(Types<X, Y>) { … });

#include <array>
#include <cstddef>
#include <string>

#include "lamina/core/dtype.h"

namespace lamina {

// One supported combination of element types.
template <class... T>
struct Types {
  static constexpr std::array<DType, sizeof...(T)> kKey{DTypeOf<T>::value...};
};

template <class... Row>
struct Table {
  static constexpr std::size_t kSize = sizeof...(Row);
};

// Calls f(Row{}) for the row whose key matches; false when none does.
template <class... Row, class Key, class F>
constexpr bool Dispatch(Table<Row...>, const Key& key, F&& f) {
  return ((Row::kKey == key && (f(Row{}), true)) || ...);
}

// Calls f(Row{}) for every row in order.
template <class... Row, class F>
constexpr void ForEachRow(Table<Row...>, F&& f) {
  (f(Row{}), ...);
}

// "bf16 -> f8e4m3fn" for {kBF16, kF8E4M3Fn}.
template <class Key>
std::string KeyName(const Key& key, const char* separator = " -> ") {
  std::string name;
  for (DType type : key) {
    if (!name.empty()) name += separator;
    name += Name(type);
  }
  return name;
}

// "f32 -> f32, bf16 -> f8e4m3fn": what an Unimplemented error lists.
template <class... Row>
std::string SupportedRows(Table<Row...>, const char* separator = " -> ") {
  std::string rows;
  ((rows += (rows.empty() ? "" : ", ") + KeyName(Row::kKey, separator)), ...);
  return rows;
}

}  // namespace lamina
