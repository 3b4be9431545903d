#include "lamina/model/dequantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/float16.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"
#include "lamina/quant/fp8.h"

namespace lamina {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the file formats are little-endian and are read in place");

struct TypeInfo {
  const char* name;
  int block_elements;
  int block_bytes;
};
// Indexed by StorageType.
constexpr TypeInfo kTypes[] = {
    {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},
    {"f64", 1, 8},      {"f8e4m3fn", 1, 1}, {"f8e5m2", 1, 1},
    {"f8e8m0", 1, 1},   {"bool", 1, 1},     {"i8", 1, 1},
    {"u8", 1, 1},       {"i16", 1, 2},      {"u16", 1, 2},
    {"i32", 1, 4},      {"u32", 1, 4},      {"i64", 1, 8},
    {"u64", 1, 8},      {"q4_0", 32, 18},   {"q4_1", 32, 20},
    {"q5_0", 32, 22},   {"q5_1", 32, 24},   {"q8_0", 32, 34},
    {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
};
static_assert(std::size(kTypes) == kNumStorageTypes);

const TypeInfo& InfoOf(StorageType type) {
  return kTypes[static_cast<size_t>(type)];
}

template <class T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float LoadF16(const uint8_t* bytes) {
  return ToFloat(F16{Load<uint16_t>(bytes)});
}

template <class T>
void Plain(const uint8_t* bytes, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const T element = Load<T>(bytes + i * static_cast<int64_t>(sizeof(T)));
    if constexpr (std::is_same_v<T, double>) {
      values[i] = static_cast<float>(element);
    } else {
      values[i] = ToFloat(element);
    }
  }
}

template <class T>
void Eight(const uint8_t* bytes, int64_t count, float* values) {
  static constexpr std::array<float, 256> kTable = [] {
    std::array<float, 256> table{};
    for (int code = 0; code < 256; ++code) {
      table[static_cast<size_t>(code)] = ToFloat(T{static_cast<uint8_t>(code)});
    }
    return table;
  }();
  for (int64_t i = 0; i < count; ++i) values[i] = kTable[bytes[i]];
}

// ---- Blocks of 32. Low nibbles are elements 0-15, high ones 16-31; the fifth
// bits of Q5 are a 32-bit word, bit i for element i.

void BlockQ4_0(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  for (int i = 0; i < 16; ++i) {
    const int q = block[2 + i];
    y[i] = static_cast<float>((q & 15) - 8) * d;
    y[i + 16] = static_cast<float>((q >> 4) - 8) * d;
  }
}

void BlockQ4_1(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int q = block[4 + i];
    y[i] = static_cast<float>(q & 15) * d + m;
    y[i + 16] = static_cast<float>(q >> 4) * d + m;
  }
}

void BlockQ5_0(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  const uint32_t high = Load<uint32_t>(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int q = block[6 + i];
    const int h0 = static_cast<int>((high >> i) & 1u) << 4;
    const int h1 = static_cast<int>((high >> (i + 16)) & 1u) << 4;
    y[i] = static_cast<float>(((q & 15) | h0) - 16) * d;
    y[i + 16] = static_cast<float>(((q >> 4) | h1) - 16) * d;
  }
}

void BlockQ5_1(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  const uint32_t high = Load<uint32_t>(block + 4);
  for (int i = 0; i < 16; ++i) {
    const int q = block[8 + i];
    const int h0 = static_cast<int>((high >> i) & 1u) << 4;
    const int h1 = static_cast<int>((high >> (i + 16)) & 1u) << 4;
    y[i] = static_cast<float>((q & 15) | h0) * d + m;
    y[i + 16] = static_cast<float>((q >> 4) | h1) * d + m;
  }
}

void BlockQ8_0(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  for (int i = 0; i < 32; ++i) {
    y[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

// ---- Blocks of 256.

struct ScaleAndMinimum {
  int scale;
  int minimum;
};
// Eight 6-bit scales and eight 6-bit minimums in 12 bytes: the first four of
// each are the low 6 bits of bytes 0-3 and 4-7; the last four have their low
// nibbles in bytes 8-11 and their top two bits above the first four.
ScaleAndMinimum UnpackScale(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4,
          (packed[group + 4] >> 4) | (packed[group] >> 6) << 4};
}

void BlockQ4_K(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  const float dmin = LoadF16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const auto [scale, minimum] = UnpackScale(block + 4, group);
    const float step = d * static_cast<float>(scale);
    const float base = dmin * static_cast<float>(minimum);
    // Two groups share 32 bytes: low nibbles, then high nibbles.
    const uint8_t* codes = block + 16 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      y[32 * group + i] =
          step * static_cast<float>((codes[i] >> shift) & 15) - base;
    }
  }
}

void BlockQ5_K(const uint8_t* block, float* y) {
  const float d = LoadF16(block);
  const float dmin = LoadF16(block + 2);
  const uint8_t* high = block + 16;  // bit `group` of byte i
  for (int group = 0; group < 8; ++group) {
    const auto [scale, minimum] = UnpackScale(block + 4, group);
    const float step = d * static_cast<float>(scale);
    const float base = dmin * static_cast<float>(minimum);
    const uint8_t* codes = block + 48 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int q = ((codes[i] >> shift) & 15) | ((high[i] >> group) & 1) << 4;
      y[32 * group + i] = step * static_cast<float>(q) - base;
    }
  }
}

void BlockQ6_K(const uint8_t* block, float* y) {
  const float d = LoadF16(block + 208);
  for (int group = 0; group < 8; ++group) {  // 32 elements, two scales
    const int half = group / 4;
    const int quarter = group % 4;
    // Within a half, quarters 0 and 1 are the low nibbles of 64 bytes,
    // quarters 2 and 3 the high ones.
    const uint8_t* low = block + 64 * half + 32 * (quarter % 2);
    const uint8_t* high = block + 128 + 32 * half;
    const uint8_t* scales = block + 192 + 2 * group;
    for (int i = 0; i < 32; ++i) {
      const int q = ((low[i] >> (4 * (quarter / 2))) & 15) |
                    ((high[i] >> (2 * quarter)) & 3) << 4;
      const float step =
          d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
      y[32 * group + i] = step * static_cast<float>(q - 32);
    }
  }
}

template <int kElements, int kBytes, void (*kDecode)(const uint8_t*, float*)>
void Blocks(const uint8_t* bytes, int64_t count, float* values) {
  for (int64_t i = 0; i < count; i += kElements) {
    kDecode(bytes, values + i);
    bytes += kBytes;
  }
}

// Rounds a chunk into the output.
void Store(const float* values, int64_t count, DType dtype, void* out,
           int64_t offset) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(static_cast<float*>(out) + offset, values,
                  static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) {
        static_cast<F16*>(out)[offset + i] = FromFloat<F16>(values[i]);
      }
      return;
    default:
      for (int64_t i = 0; i < count; ++i) {
        static_cast<BF16*>(out)[offset + i] = FromFloat<BF16>(values[i]);
      }
  }
}

void ReadRow(const CheckpointTensor& tensor, int64_t row, const MatrixView& out,
             int64_t out_row) {
  const int64_t cols = tensor.cols();
  const int64_t block = BlockElements(tensor.type);
  const uint8_t* bytes =
      tensor.data + row * (cols / block) * BlockBytes(tensor.type);
  const auto* scales = static_cast<const float*>(tensor.scales.data);
  const int64_t begin = out_row * out.row_stride;
  float values[model_internal::kDequantizeChunk];
  for (int64_t col = 0; col < cols; col += model_internal::kDequantizeChunk) {
    const int64_t count =
        std::min(model_internal::kDequantizeChunk, cols - col);
    model_internal::DequantizeChunk(
        tensor.type, bytes + col / block * BlockBytes(tensor.type), count,
        values);
    if (scales != nullptr) {
      for (int64_t i = 0; i < count; ++i) {
        values[i] *= scales[tensor.scales.Index(row, col + i)];
      }
    }
    Store(values, count, out.dtype, out.data, begin + col);
  }
}

}  // namespace

const char* Name(StorageType type) { return InfoOf(type).name; }
int64_t BlockElements(StorageType type) { return InfoOf(type).block_elements; }
int64_t BlockBytes(StorageType type) { return InfoOf(type).block_bytes; }

std::optional<DType> ToDType(StorageType type) {
  switch (type) {
    case StorageType::kF32:
      return DType::kF32;
    case StorageType::kF16:
      return DType::kF16;
    case StorageType::kBF16:
      return DType::kBF16;
    case StorageType::kF8E4M3:
      return DType::kF8E4M3Fn;
    case StorageType::kF8E5M2:
      return DType::kF8E5M2;
    case StorageType::kF8E8M0:
      return DType::kF8E8M0;
    case StorageType::kI8:
      return DType::kI8;
    case StorageType::kI32:
      return DType::kI32;
    case StorageType::kI64:
      return DType::kI64;
    default:
      return std::nullopt;
  }
}

int64_t CheckpointTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::optional<ConstMatrixView> CheckpointTensor::view() const {
  const std::optional<DType> dtype = ToDType(type);
  if (!dtype || reinterpret_cast<uintptr_t>(data) %
                        static_cast<uintptr_t>(BlockBytes(type)) !=
                    0) {
    return std::nullopt;
  }
  return ConstMatrixView{.data = data,
                         .dtype = *dtype,
                         .rows = rows(),
                         .cols = cols(),
                         .row_stride = cols()};
}

namespace model_internal {

bool CanDequantize(StorageType type) {
  switch (type) {
    case StorageType::kBool:
    case StorageType::kU8:
    case StorageType::kI16:
    case StorageType::kU16:
    case StorageType::kI32:
    case StorageType::kU32:
    case StorageType::kI64:
    case StorageType::kU64:
      return false;
    default:
      return true;
  }
}

void DequantizeChunk(StorageType type, const uint8_t* bytes, int64_t count,
                     float* values) {
  switch (type) {
    case StorageType::kF32:
      return Plain<float>(bytes, count, values);
    case StorageType::kF16:
      return Plain<F16>(bytes, count, values);
    case StorageType::kBF16:
      return Plain<BF16>(bytes, count, values);
    case StorageType::kF64:
      return Plain<double>(bytes, count, values);
    case StorageType::kI8:
      return Plain<int8_t>(bytes, count, values);
    case StorageType::kF8E4M3:
      return Eight<F8E4M3Fn>(bytes, count, values);
    case StorageType::kF8E5M2:
      return Eight<F8E5M2>(bytes, count, values);
    case StorageType::kF8E8M0:
      return Eight<F8E8M0>(bytes, count, values);
    case StorageType::kQ4_0:
      return Blocks<32, 18, BlockQ4_0>(bytes, count, values);
    case StorageType::kQ4_1:
      return Blocks<32, 20, BlockQ4_1>(bytes, count, values);
    case StorageType::kQ5_0:
      return Blocks<32, 22, BlockQ5_0>(bytes, count, values);
    case StorageType::kQ5_1:
      return Blocks<32, 24, BlockQ5_1>(bytes, count, values);
    case StorageType::kQ8_0:
      return Blocks<32, 34, BlockQ8_0>(bytes, count, values);
    case StorageType::kQ4_K:
      return Blocks<256, 144, BlockQ4_K>(bytes, count, values);
    case StorageType::kQ5_K:
      return Blocks<256, 176, BlockQ5_K>(bytes, count, values);
    case StorageType::kQ6_K:
      return Blocks<256, 210, BlockQ6_K>(bytes, count, values);
    default:
      return;  // not a number that a model computes with
  }
}

}  // namespace model_internal

absl::Status ReadRows(const CheckpointTensor& tensor, int64_t first_row,
                      MatrixView out, Stream stream) {
  constexpr const char* kOp = "ReadRows";
  LAMINA_RETURN_IF_ERROR(CheckCpuStream(kOp, stream));
  if (!model_internal::CanDequantize(tensor.type)) {
    return absl::UnimplementedError(absl::StrCat(kOp, ": ", tensor.name,
                                                 ": type ", Name(tensor.type),
                                                 " is not a weight type"));
  }
  if (out.dtype != DType::kF32 && out.dtype != DType::kF16 &&
      out.dtype != DType::kBF16) {
    return InvalidArgument(kOp, "out.dtype", std::string(Name(out.dtype)),
                           "f32, f16 or bf16");
  }
  LAMINA_RETURN_IF_ERROR(
      CheckShape(kOp, "out", out, 1, out.rows, tensor.cols()));
  if (first_row < 0 || out.rows > tensor.rows() ||
      first_row > tensor.rows() - out.rows) {
    return InvalidArgument(
        kOp, "first_row", absl::StrCat(first_row, " with ", out.rows, " rows"),
        absl::StrCat("rows within the ", tensor.rows(), " of ", tensor.name));
  }
  // 64 Ki elements take long enough to be worth a thread.
  const int64_t grain =
      std::max<int64_t>(1, 65536 / std::max<int64_t>(1, tensor.cols()));
  ParallelFor(stream, out.rows, grain,
              [&](int64_t begin, int64_t end, int /*thread*/) {
                for (int64_t r = begin; r < end; ++r) {
                  ReadRow(tensor, first_row + r, out, r);
                }
              });
  return absl::OkStatus();
}

}  // namespace lamina
