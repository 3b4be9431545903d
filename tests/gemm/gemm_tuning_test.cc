// Measured plans for SkinnyGemm: the file, what is refused, and that no bit of
// a result changes.

#include "lamina/gemm/gemm_tuning.h"

#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gemm/skinny_gemm_checks.h"

namespace lamina {
namespace {

using testing::GemmCase;
using testing::GemmSpec;

DeviceInfo Hopper() {
  DeviceInfo info;
  info.device = {Backend::kCuda, 0};
  info.name = "NVIDIA H200";
  info.arch = "sm_90";
  info.num_units = 132;
  info.shared_memory_bytes = 227 << 10;
  return info;
}

constexpr GemmTuningKey kKey = {.n = 4096, .k = 4096, .rows = 16};

GemmTuning SomeTuning() {
  GemmTuning tuning;
  for (GemmTuningEntry entry : GemmTuningCandidates(kKey, Hopper())) {
    entry.key.n += 16 * static_cast<int64_t>(tuning.entries().size());
    entry.us = 7.25;
    entry.policy_us = 8;
    tuning.Add(entry);
  }
  return tuning;
}

TEST(GemmTuning, CandidatesBeginWithThePolicy) {
  const auto candidates = GemmTuningCandidates(kKey, Hopper());
  EXPECT_GT(candidates.size(), 8u);
  EXPECT_LT(candidates.size(), 100u);
  GemmTuningKey other = kKey;
  other.x_type = DType::kF16;
  EXPECT_TRUE(GemmTuningCandidates(other, Hopper()).empty());
  EXPECT_TRUE(GemmTuningCandidates(kKey, DeviceInfo{}).empty());
}

TEST(GemmTuning, FilesComeBack) {
  const GemmTuning tuning = SomeTuning();
  const auto back =
      ParseGemmTuning(FormatGemmTuning(tuning, Hopper()), Hopper());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->entries(), tuning.entries());
  EXPECT_NE(back->Find(kKey), nullptr);
}

TEST(GemmTuning, ForeignFilesAreRefused) {
  const std::string text = FormatGemmTuning(SomeTuning(), Hopper());
  DeviceInfo other = Hopper();
  other.name = "another";
  EXPECT_EQ(ParseGemmTuning(text, other).status().code(),
            absl::StatusCode::kFailedPrecondition);
  other = Hopper();
  other.num_units = 114;
  EXPECT_FALSE(ParseGemmTuning(text, other).ok());
  std::string old = text;
  old.replace(old.find("\"version\": \"") + 12, 1, "9");
  EXPECT_EQ(ParseGemmTuning(old, Hopper()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Every prefix, and every byte changed, either is refused or is a valid file.
TEST(GemmTuning, CorruptFilesAreRefused) {
  GemmTuning tuning;
  tuning.Add(GemmTuningCandidates(kKey, Hopper())[0]);
  const std::string text = FormatGemmTuning(tuning, Hopper());
  const size_t header = text.find('\n') + 1;
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    if (size == header || size + 1 == header) continue;  // no entries
    EXPECT_FALSE(ParseGemmTuning(text.substr(0, size), Hopper()).ok()) << size;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'9', '-', '"', ' ', '\0'}) {
      std::string changed = text;
      changed[i] = c;
      const auto parsed = ParseGemmTuning(changed, Hopper());
      if (!parsed.ok()) continue;
      for (const GemmTuningEntry& entry : parsed->entries()) {
        EXPECT_LE(entry.blocks, 132);
        EXPECT_GT(entry.ring_bytes, 0);
      }
    }
  }
  for (const char* nonsense : {"", "\n", "{}", "{\"a\": 1}", "[1, 2]"}) {
    EXPECT_FALSE(ParseGemmTuning(nonsense, Hopper()).ok()) << nonsense;
  }
}

// Sizes whose bytes no 64 bits hold, and those that no matrix has.
TEST(GemmTuning, SizesBeyondAllMatricesAreRefused) {
  GemmTuning tuning;
  tuning.Add(GemmTuningCandidates(kKey, Hopper())[0]);
  const std::string text = FormatGemmTuning(tuning, Hopper());
  for (const char* name : {"\"n\": ", "\"k\": "}) {
    for (const char* size :
         {"9223372036854775807", "9223372036854775800", "9223372036854775808",
          "4611686018427387904", "2147483648", "0", "-4096"}) {
      std::string changed = text;
      const size_t at = changed.find(name) + 5;
      changed.replace(at, 4, size);
      const auto parsed = ParseGemmTuning(changed, Hopper());
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
          << name << size;
    }
    GemmTuningKey key = kKey;
    (name[1] == 'n' ? key.n : key.k) = int64_t{1} << 62;
    EXPECT_TRUE(GemmTuningCandidates(key, Hopper()).empty());
  }
}

TEST(GemmTuning, FilesThatCannotBeReadOnlyWarn) {
  std::string warning;
  EXPECT_TRUE(
      LoadGemmTuning("/no/such/file", Hopper(), &warning).entries().empty());
  EXPECT_NE(warning.find("/no/such/file"), std::string::npos);
  EXPECT_TRUE(LoadGemmTuning("/no/such/file", Hopper()).entries().empty());
}

TEST(GemmTuning, NoBitChanges) {
  const DeviceInfo& device = GetDeviceInfo(testing::TestStream().device());
  const GemmSpec spec{.m = 5,
                      .n = 200,
                      .k = 1040,
                      .x = DType::kF8E4M3Fn,
                      .w = DType::kF8E4M3Fn,
                      .y = DType::kF32};
  const auto candidates =
      GemmTuningCandidates({.n = spec.n, .k = spec.k}, device);
  if (candidates.empty()) GTEST_SKIP() << "nothing to tune";
  GemmCase plain(spec);
  ASSERT_TRUE(plain.Run().ok());
  for (const GemmTuningEntry& entry : candidates) {
    GemmTuning tuning;
    tuning.Add(entry);
    GemmCase tuned(spec);
    SkinnyGemmArgs args = tuned.Args();
    args.tuning = &tuning;
    const Stream stream = testing::TestStream();
    ASSERT_TRUE(SkinnyGemm(args, stream).ok());
    ASSERT_TRUE(Synchronize(stream).ok());
    ASSERT_EQ(tuned.y.Dense<float>(), plain.y.Dense<float>())
        << entry.blocks << " blocks, rings of " << entry.ring_bytes << " and "
        << entry.x_ring_bytes << ", copies " << entry.tensor_copies;
  }
}

}  // namespace
}  // namespace lamina
