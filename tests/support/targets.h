#pragma once

// Running one test body on every SIMD target, and readable type names.

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "lamina/core/device.h"
#include "lamina/core/dtype.h"
#include "tests/support/test_device.h"

namespace lamina::testing {

// Runs body once for each SIMD target of this machine, then restores the
// default. On a GPU (tests/support/test_device.h): once.
inline void ForEachTarget(const std::function<void()>& body) {
  if (!OnCpu()) return body();
  for (const std::string& target : CpuTargetNames()) {
    ASSERT_TRUE(ForceCpuTarget(target));
    SCOPED_TRACE(target);
    body();
    if (::testing::Test::HasFatalFailure()) break;
  }
  ForceCpuTarget("");
}

// "bf16_f8e4m3fn" for Types<BF16, F8E4M3Fn>: the third argument of
// TYPED_TEST_SUITE.
struct TypeNames {
  template <class Row>
  static std::string GetName(int) {
    std::string name;
    for (DType type : Row::kKey) {
      if (!name.empty()) name += "_";
      name += Name(type);
    }
    return name;
  }
};

// The rows of a typed table as GoogleTest wants them.
template <class Table>
struct TestTypesOf;
template <template <class...> class Table, class... Row>
struct TestTypesOf<Table<Row...>> {
  using type = ::testing::Types<Row...>;
};

}  // namespace lamina::testing
