// SkinnyGemm: projections of Llama-3-8B and SmolLM2-135M, bf16 activations.

#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/support/working_sets.h"
#include "lamina/gemm/skinny_gemm.h"

namespace lamina::bench {
namespace {

template <class W>
Case SkinnyGemmCase(int64_t m, int64_t n, int64_t k) {
  constexpr DType kWeightType = DTypeOf<W>::value;
  constexpr bool kScaled = IsFp8(kWeightType);
  const auto prepare = [=](int64_t sets, const Stream& stream) {
    const WorkingSets<BF16> x(stream, 1, m * k);
    const WorkingSets<W> w(stream, sets, n * k);
    const WorkingSets<float> scales(stream, 1, n);
    const WorkingSets<BF16> y(stream, 1, m * n);
    const SkinnyGemmProblem problem{
        .m = m, .n = n, .k = k, .w_type = kWeightType};
    const int64_t workspace_bytes =
        SkinnyGemmWorkspaceBytes(problem, GetDeviceInfo(stream.device()),
                                 stream.num_threads())
            .value_or(0);
    auto workspace = std::make_shared<std::vector<char>>(workspace_bytes);
    const Call ours = [=](int64_t set, const Stream& on) {
      SkinnyGemmArgs args{.x = Matrix(x[0], m, k),
                          .w = Matrix(w[set], n, k),
                          .y = Matrix(y[0], m, n),
                          .workspace = workspace->data(),
                          .workspace_bytes = workspace_bytes};
      if (kScaled) args.w_scales = PerRow(scales[0]);
      return SkinnyGemm(args, on);
    };
    return Calls{.ours = ours};
  };
  const std::string dtype = std::string("bf16_") + Name(kWeightType);
  return {.op = "skinny_gemm",
          .name = dtype + "/m:" + std::to_string(m) +
                  "/n:" + std::to_string(n) + "/k:" + std::to_string(k),
          .dtype = dtype,
          .m = m,
          .n = n,
          .k = k,
          .bytes = BytesFor(kWeightType, n * k) + (kScaled ? 4 * n : 0) +
                   2 * m * (n + k),
          .prepare = prepare};
}

}  // namespace

std::vector<Case> SkinnyGemmCases(Backend backend) {
  if (backend != Backend::kCpu) return {};
  std::vector<Case> cases;
  for (const int64_t m : {1, 8, 64}) {
    cases.push_back(SkinnyGemmCase<BF16>(m, 4096, 4096));
    cases.push_back(SkinnyGemmCase<F8E4M3Fn>(m, 4096, 4096));
  }
  cases.push_back(SkinnyGemmCase<BF16>(1, 3072, 576));
  cases.push_back(SkinnyGemmCase<F8E4M3Fn>(1, 3072, 576));
  return cases;
}

}  // namespace lamina::bench
