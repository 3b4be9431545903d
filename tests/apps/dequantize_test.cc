// Block types against gguf's own decoder, bit for bit (goldens), and ReadRows.

#include "lamina/model/dequantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lamina/core/float16.h"
#include "lamina/model/checkpoint.h"
#include "lamina/quant/fp8.h"
#include "tests/support/memory.h"
#include "tests/support/model_files.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> FromHex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(
        static_cast<uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

const std::map<std::string, StorageType>& BlockTypes() {
  static const std::map<std::string, StorageType> types = {
      {"Q4_0", StorageType::kQ4_0}, {"Q4_1", StorageType::kQ4_1},
      {"Q5_0", StorageType::kQ5_0}, {"Q5_1", StorageType::kQ5_1},
      {"Q8_0", StorageType::kQ8_0}, {"Q4_K", StorageType::kQ4_K},
      {"Q5_K", StorageType::kQ5_K}, {"Q6_K", StorageType::kQ6_K}};
  return types;
}

CheckpointTensor TensorOf(StorageType type, std::vector<int64_t> shape,
                          const std::vector<uint8_t>& bytes) {
  CheckpointTensor tensor;
  tensor.name = "t";
  tensor.type = type;
  tensor.shape = std::move(shape);
  tensor.data = bytes.data();
  tensor.bytes = static_cast<int64_t>(bytes.size());
  return tensor;
}

TEST(Dequantize, EqualsGgufBitForBit) {
  std::ifstream goldens(LAMINA_GOLDENS_DIR "/ggml_blocks.txt");
  ASSERT_TRUE(goldens);
  std::string name, block_hex, value_hex;
  size_t types = 0;
  while (goldens >> name >> block_hex >> value_hex) {
    ++types;
    const StorageType type = BlockTypes().at(name);
    const std::vector<uint8_t> blocks = FromHex(block_hex);
    const std::vector<uint8_t> want = FromHex(value_hex);
    const int64_t cols = static_cast<int64_t>(want.size() / 4);
    ASSERT_EQ(static_cast<int64_t>(blocks.size()),
              cols / BlockElements(type) * BlockBytes(type));
    std::vector<float> values(static_cast<size_t>(cols));
    const CheckpointTensor tensor = TensorOf(type, {1, cols}, blocks);
    ASSERT_TRUE(
        ReadRows(tensor, 0, Matrix(values.data(), 1, cols), Stream::Cpu())
            .ok());
    for (int64_t i = 0; i < cols; ++i) {
      uint32_t bits;
      std::memcpy(&bits, want.data() + 4 * i, 4);
      ASSERT_EQ(std::bit_cast<uint32_t>(values[static_cast<size_t>(i)]), bits)
          << name << " element " << i;
    }
  }
  EXPECT_EQ(types, BlockTypes().size());
}

TEST(Dequantize, PlainTypesAreExact) {
  // All 65,536 codes of the 16-bit types and all 256 of the 8-bit ones.
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 65536; ++i) {
    bytes.push_back(static_cast<uint8_t>(i));
    bytes.push_back(static_cast<uint8_t>(i >> 8));
  }
  std::vector<float> values(65536);
  const auto read = [&](StorageType type, int64_t cols) {
    const CheckpointTensor tensor = TensorOf(type, {1, cols}, bytes);
    EXPECT_TRUE(
        ReadRows(tensor, 0, Matrix(values.data(), 1, cols), Stream::Cpu())
            .ok());
  };
  const auto same = [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  read(StorageType::kF16, 65536);
  for (int i = 0; i < 65536; ++i) {
    ASSERT_TRUE(same(values[static_cast<size_t>(i)],
                     ToFloat(F16{static_cast<uint16_t>(i)})));
  }
  read(StorageType::kBF16, 65536);
  for (int i = 0; i < 65536; ++i) {
    ASSERT_TRUE(same(values[static_cast<size_t>(i)],
                     ToFloat(BF16{static_cast<uint16_t>(i)})));
  }
  // The 16-bit pattern again, byte by byte: codes 0, 0, 1, 0, 2, 0, …
  read(StorageType::kF8E4M3, 512);
  for (int i = 0; i < 256; ++i) {
    ASSERT_TRUE(same(values[static_cast<size_t>(2 * i)],
                     ToFloat(F8E4M3Fn{static_cast<uint8_t>(i)})));
  }
  read(StorageType::kF8E5M2, 512);
  for (int i = 0; i < 256; ++i) {
    ASSERT_TRUE(same(values[static_cast<size_t>(2 * i)],
                     ToFloat(F8E5M2{static_cast<uint8_t>(i)})));
  }
  read(StorageType::kI8, 512);
  EXPECT_EQ(values[2 * 128], -128.0f);
  EXPECT_EQ(values[2 * 127], 127.0f);
}

TEST(Dequantize, DoubleIsRoundedOnce) {
  const double value = 1.0 + 0x1p-24 + 0x1p-50;  // above the tie
  std::vector<uint8_t> bytes(8);
  std::memcpy(bytes.data(), &value, 8);
  float out = 0;
  ASSERT_TRUE(ReadRows(TensorOf(StorageType::kF64, {1}, bytes), 0,
                       Matrix(&out, 1, 1), Stream::Cpu())
                  .ok());
  EXPECT_EQ(out, 1.0f + 0x1p-23f);
}

// Scale of each granularity, odd sizes, every output type, padding untouched.
TEST(ReadRows, ScalesAndRounds) {
  const int64_t rows = 131, cols = 259;
  const std::vector<uint8_t> codes =
      testing::RandomBytes(5, static_cast<uint64_t>(rows * cols));
  std::vector<float> scales(static_cast<size_t>(rows * 3));
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = 0.01f * static_cast<float>(i + 1);
  }
  CheckpointTensor tensor = TensorOf(StorageType::kF8E4M3, {rows, cols}, codes);
  const float* data = scales.data();
  for (const ConstScaleView& view :
       {ConstScaleView{}, ConstScaleView(PerTensor(data)),
        ConstScaleView(PerRow(data)), ConstScaleView(PerTile(data, cols))}) {
    tensor.scales = view;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const int64_t first = 3, count = 127;
      testing::GuardedMatrix out(dtype, count, cols, cols + 5, 1);
      ASSERT_TRUE(ReadRows(tensor, first, out.view(), Stream::Cpu(3)).ok());
      EXPECT_TRUE(out.GuardsIntact());
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const int64_t row = first + r;
          float want =
              ToFloat(F8E4M3Fn{codes[static_cast<size_t>(row * cols + c)]});
          if (view.has_value()) {
            const int64_t index =
                view.granularity == ScaleGranularity::kPerTensor ? 0
                : view.granularity == ScaleGranularity::kPerRow
                    ? row
                    : row / 128 * 3 + c / 128;
            want *= scales[static_cast<size_t>(index)];
          }
          switch (dtype) {
            case DType::kF32:
              ASSERT_EQ(std::bit_cast<uint32_t>(out.At<float>(r, c)),
                        std::bit_cast<uint32_t>(want));
              break;
            case DType::kF16:
              ASSERT_EQ(out.At<F16>(r, c), FromFloat<F16>(want));
              break;
            default:
              ASSERT_EQ(out.At<BF16>(r, c), FromFloat<BF16>(want));
          }
        }
      }
    }
  }
}

TEST(ReadRows, SameForAnyNumberOfThreads) {
  const int64_t rows = 300, cols = 1024;
  const std::vector<uint8_t> blocks =
      testing::RandomBytes(6, static_cast<uint64_t>(rows * cols / 256 * 210));
  const CheckpointTensor tensor =
      TensorOf(StorageType::kQ6_K, {rows, cols}, blocks);
  std::vector<BF16> one(static_cast<size_t>(rows * cols));
  ASSERT_TRUE(
      ReadRows(tensor, 0, Matrix(one.data(), rows, cols), Stream::Cpu(1)).ok());
  for (const int threads : {2, 3, 7}) {
    std::vector<BF16> many(one.size());
    ASSERT_TRUE(ReadRows(tensor, 0, Matrix(many.data(), rows, cols),
                         Stream::Cpu(threads))
                    .ok());
    EXPECT_EQ(testing::FirstDifference(one, many), -1);
  }
}

TEST(ReadRows, NamesWhatIsWrong) {
  const std::vector<uint8_t> bytes(64);
  const CheckpointTensor tensor = TensorOf(StorageType::kF32, {4, 4}, bytes);
  std::vector<float> out(64);
  const auto message = [&](const CheckpointTensor& t, int64_t first,
                           MatrixView view) {
    const absl::Status status = ReadRows(t, first, view, Stream::Cpu());
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  EXPECT_THAT(message(tensor, 3, Matrix(out.data(), 2, 4)),
              HasSubstr("ReadRows: first_row: given 3 with 2 rows, want rows "
                        "within the 4 of t"));
  EXPECT_THAT(message(tensor, -1, Matrix(out.data(), 2, 4)),
              HasSubstr("first_row: given -1"));
  EXPECT_THAT(message(tensor, 0, Matrix(out.data(), 2, 5)),
              HasSubstr("out.cols: given 5, want 4"));
  EXPECT_THAT(message(tensor, 0, Matrix(static_cast<float*>(nullptr), 2, 4)),
              HasSubstr("out.data"));
  EXPECT_THAT(
      message(tensor, 0, Matrix(reinterpret_cast<int32_t*>(out.data()), 2, 4)),
      HasSubstr("out.dtype: given i32, want f32, f16 or bf16"));
  EXPECT_THAT(message(TensorOf(StorageType::kI32, {4, 4}, bytes), 0,
                      Matrix(out.data(), 2, 4)),
              HasSubstr("type i32 is not a weight type"));
  // No rows is fine.
  EXPECT_TRUE(
      ReadRows(tensor, 4, Matrix(out.data(), 0, 4), Stream::Cpu()).ok());
}

TEST(CheckpointTensor, ViewsOnlyWhatIsAligned) {
  alignas(16) static const uint8_t bytes[40] = {};
  CheckpointTensor tensor;
  tensor.type = StorageType::kF32;
  tensor.shape = {2, 3};
  tensor.data = bytes;
  ASSERT_TRUE(tensor.view().has_value());
  EXPECT_EQ(tensor.view()->rows, 2);
  EXPECT_EQ(tensor.view()->cols, 3);
  tensor.data = bytes + 2;
  EXPECT_FALSE(tensor.view().has_value());
  tensor.type = StorageType::kQ8_0;
  EXPECT_FALSE(tensor.view().has_value());
}

}  // namespace
}  // namespace lamina
