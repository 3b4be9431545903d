// What a caller can get wrong, and the message for it.

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/gemm/skinny_gemm.h"
#include "tests/gemm/skinny_gemm_case.h"

namespace lamina {
namespace {

using testing::GemmCase;
using testing::GemmSpec;
using ::testing::HasSubstr;

class SkinnyGemmErrors : public ::testing::Test {
 protected:
  // The status of a valid call after `spoil`.
  absl::Status After(
      const std::function<void(SkinnyGemmArgs&)>& spoil,
      GemmSpec spec = {
          .m = 2, .n = 8, .k = 32, .bias = DType::kF32, .residual = true}) {
    GemmCase test(spec);
    SkinnyGemmArgs args = test.Args();
    std::vector<char> workspace(1 << 20);
    args.workspace = workspace.data();
    args.workspace_bytes = 1 << 20;
    EXPECT_TRUE(SkinnyGemm(args, Stream::Cpu(2)).ok());
    test.y.Poison();
    spoil(args);
    const absl::Status status = SkinnyGemm(args, Stream::Cpu(2));
    // Nothing was written.
    GemmCase fresh(spec);
    EXPECT_EQ(
        testing::FirstDifference(test.y.Dense<BF16>(), fresh.y.Dense<BF16>()),
        -1);
    return status;
  }
  void ExpectInvalid(const absl::Status& status, const char* message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << status.ToString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
};

TEST_F(SkinnyGemmErrors, Shapes) {
  ExpectInvalid(After([](auto& a) { a.w.cols = 31; }),
                "SkinnyGemm: w.cols: given 31, want 32 (x.cols)");
  ExpectInvalid(After([](auto& a) { a.y.rows = 3; }),
                "SkinnyGemm: y.rows: given 3, want 2");
  ExpectInvalid(After([](auto& a) { a.y.cols = 7; }),
                "SkinnyGemm: y.cols: given 7, want 8");
  ExpectInvalid(After([](auto& a) { a.bias.size = 7; }),
                "SkinnyGemm: bias.size: given 7, want 8");
  ExpectInvalid(After([](auto& a) { a.residual.cols = 4; }),
                "SkinnyGemm: residual.cols: given 4, want 8");
  ExpectInvalid(After([](auto& a) { a.x.batch = 2; }),
                "SkinnyGemm: x.batch: given 2, want 1");
  ExpectInvalid(After([](auto& a) { a.x.row_stride = 31; }),
                "SkinnyGemm: x.row_stride: given 31");
  ExpectInvalid(After([](auto& a) {
                  a.gate = GateSpec{};
                  a.y.cols = 8;
                }),
                "SkinnyGemm: residual.cols: given 8, want 4");
  ExpectInvalid(After([](auto& a) {
                  a.gate = GateSpec{};
                  a.w.rows = 7;
                }),
                "SkinnyGemm: w.rows: given 7, want an even number");
  ExpectInvalid(After([](auto& a) { a.x.rows = -1; }),
                "SkinnyGemm: x.rows: given -1");
}

TEST_F(SkinnyGemmErrors, NullPointers) {
  ExpectInvalid(After([](auto& a) { a.x.data = nullptr; }),
                "SkinnyGemm: x.data: given null, want a pointer");
  ExpectInvalid(After([](auto& a) { a.w.data = nullptr; }),
                "SkinnyGemm: w.data: given null, want a pointer");
  ExpectInvalid(After([](auto& a) { a.y.data = nullptr; }),
                "SkinnyGemm: y.data: given null, want a pointer, or a "
                "quantized output");
  ExpectInvalid(After([](auto& a) { a.bias.data = nullptr; }),
                "SkinnyGemm: bias.data: given null");
  ExpectInvalid(After([](auto& a) { a.workspace = nullptr; }),
                "SkinnyGemm: workspace: given null");
}

TEST_F(SkinnyGemmErrors, Types) {
  ExpectInvalid(After([](auto& a) { a.x.dtype = DType::kI8; }),
                "SkinnyGemm: x.dtype: given i8, want one of f32, f16, bf16");
  ExpectInvalid(After([](auto& a) { a.w.dtype = DType::kF32; }),
                "SkinnyGemm: w.dtype: given f32, want one of f16, bf16, "
                "f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz");
  ExpectInvalid(After([](auto& a) { a.y.dtype = DType::kF8E5M2; }),
                "SkinnyGemm: y.dtype: given f8e5m2, want one of f32, f16");
  ExpectInvalid(After([](auto& a) { a.bias.dtype = DType::kF16; }),
                "SkinnyGemm: bias.dtype: given f16, want f32 or bf16");
  ExpectInvalid(After([](auto& a) { a.residual.dtype = DType::kF16; }),
                "SkinnyGemm: residual.dtype: given f16, want bf16");
  ExpectInvalid(
      After([](auto& a) { a.x.data = static_cast<const char*>(a.x.data) + 1; }),
      "SkinnyGemm: x.data: given a misaligned pointer");
  ExpectInvalid(After([](auto& a) {
                  a.gate = GateSpec{.kind = static_cast<ActivationKind>(9)};
                }),
                "SkinnyGemm: gate.kind: given 9");
  ExpectInvalid(After([](auto& a) {
                  a.gate = GateSpec{.layout = static_cast<GateLayout>(9)};
                }),
                "SkinnyGemm: gate.layout: given 9");
}

TEST_F(SkinnyGemmErrors, Scales) {
  static const float scales[64] = {};
  ExpectInvalid(After([](auto& a) { a.w_scales = PerTensor(scales); }),
                "SkinnyGemm: w_scales: given scales for bf16 w, want none, or "
                "FP8 w");
  ExpectInvalid(After([](auto& a) { a.x_scales = PerTensor(scales); }),
                "SkinnyGemm: x_scales: given scales for bf16 x");
  const GemmSpec fp8{
      .m = 2, .n = 8, .k = 32, .x = DType::kF8E4M3Fn, .w = DType::kF8E4M3Fn};
  ExpectInvalid(
      After([](auto& a) { a.w_scales = PerBlock(scales, 32, 64); }, fp8),
      "SkinnyGemm: w_scales.block_cols: given 64, want 128");
  ExpectInvalid(After([](auto& a) { a.x_scales = PerTile(scales, 32); }, fp8),
                "SkinnyGemm: x_scales.granularity: given per_tile, want "
                "per_tensor, per_row or per_block");
  ExpectInvalid(After(
                    [](auto& a) {
                      a.w_scales = PerTensor(scales);
                      a.w_scales.dtype = DType::kF16;
                    },
                    fp8),
                "SkinnyGemm: w_scales.dtype: given f16");
}

TEST_F(SkinnyGemmErrors, Workspace) {
  const SkinnyGemmProblem problem{.m = 2, .n = 8, .k = 32};
  const int64_t want = *SkinnyGemmWorkspaceBytes(problem, GetDeviceInfo({}), 2);
  const std::string message = "SkinnyGemm: workspace_bytes: given " +
                              std::to_string(want - 1) +
                              ", want >= " + std::to_string(want);
  ExpectInvalid(After([&](auto& a) { a.workspace_bytes = want - 1; }),
                message.c_str());
  EXPECT_EQ(
      SkinnyGemmWorkspaceBytes({.m = -1}, GetDeviceInfo({})).status().message(),
      "SkinnyGemm: m: given -1, want 0 to 2147483647");
  EXPECT_EQ(SkinnyGemmWorkspaceBytes({.m = 1, .w_type = DType::kI32},
                                     GetDeviceInfo({}))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      SkinnyGemmWorkspaceBytes({.m = 1}, GetDeviceInfo({}), -1).status().code(),
      absl::StatusCode::kInvalidArgument);
  DeviceInfo cuda;
  cuda.device.backend = Backend::kCuda;
  EXPECT_EQ(SkinnyGemmWorkspaceBytes(problem, cuda).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(SkinnyGemmErrors, Overlap) {
  ExpectInvalid(After([](auto& a) { a.y.data = const_cast<void*>(a.x.data); }),
                "SkinnyGemm: y: given memory that overlaps x");
  ExpectInvalid(After([](auto& a) { a.y.data = const_cast<void*>(a.w.data); }),
                "SkinnyGemm: y: given memory that overlaps w");
  ExpectInvalid(
      After([](auto& a) { a.y.data = const_cast<void*>(a.bias.data); }),
      "SkinnyGemm: y: given memory that overlaps bias");
  ExpectInvalid(After([](auto& a) {
                  a.residual = a.y;
                  a.residual.data = static_cast<BF16*>(a.y.data) + 1;
                }),
                "SkinnyGemm: y: given memory that overlaps residual");
  ExpectInvalid(After([](auto& a) { a.y.data = a.workspace; }),
                "SkinnyGemm: workspace: given memory that overlaps y");
  ExpectInvalid(After([](auto& a) { a.x.data = a.workspace; }),
                "SkinnyGemm: workspace: given memory that overlaps x");
  const GemmSpec quantized{.m = 2, .n = 8, .k = 32, .codes = DType::kI8};
  ExpectInvalid(
      After(
          [](auto& a) { a.quantized.codes.data = const_cast<void*>(a.x.data); },
          quantized),
      "overlaps x");
  ExpectInvalid(
      After([](auto& a) { a.quantized.codes.data = a.y.data; }, quantized),
      "overlaps y");
  ExpectInvalid(
      After([](auto& a) { a.quantized.codes.data = a.workspace; }, quantized),
      "overlaps workspace");
}

TEST_F(SkinnyGemmErrors, Unsupported) {
  const GemmSpec quantized{.m = 2, .n = 8, .k = 32, .codes = DType::kI8};
  EXPECT_EQ(After(
                [](auto& a) {
                  a.quantized.scales.granularity = ScaleGranularity::kPerTensor;
                },
                quantized)
                .code(),
            absl::StatusCode::kUnimplemented);
  GemmCase test(GemmSpec{});
  EXPECT_EQ(
      SkinnyGemm(test.Args(), Stream::Gpu({.backend = Backend::kHip}, nullptr))
          .code(),
      absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lamina
