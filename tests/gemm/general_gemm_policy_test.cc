// The plans of the general kernel, without a GPU.

#include "lamina/gemm/skinny_gemm/general_gemm_policy.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "gtest/gtest.h"

namespace lamina::gemm_internal {
namespace {

constexpr int kUnits = 132;

static_assert(SelectGeneralGemmPlan({.m = 1, .n = 28672, .octets = true},
                                    kUnits)
                  .variant.w_rows == 4);
static_assert(SelectGeneralGemmPlan({.m = 1, .n = 576, .octets = true}, kUnits)
                  .variant.w_rows == 2);

TEST(GeneralGemmPolicy, HasAKernelForEveryPlan) {
  for (const int64_t m : {1, 2, 3, 4, 5, 8, 9, 64}) {
    for (const int64_t n : {1, 576, 8447, 8448, 57344}) {
      for (const bool fp8 : {false, true}) {
        for (const bool octets : {false, true}) {
          const GeneralGemmVariant variant =
              SelectGeneralGemmPlan(
                  {.m = m, .n = n, .fp8 = fp8, .octets = octets}, kUnits)
                  .variant;
          EXPECT_EQ(std::count(std::begin(kGeneralGemmVariants),
                               std::end(kGeneralGemmVariants), variant),
                    1)
              << "m " << m << " n " << n;
          EXPECT_TRUE(variant.x_rows == 8 || variant.x_rows >= m);
          EXPECT_EQ(variant.fp8, fp8 && octets);
          EXPECT_EQ(variant.octets, octets);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lamina::gemm_internal
