#include "lamina/core/device/simt/matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "lamina/core/device/simt/async.h"
#include "lamina/core/device/simt/machine.h"
#include "lamina/core/float16.h"

namespace lamina::simt {
namespace {

constexpr int kLanes = 32;
constexpr int kWaves = 4;      // of a warpgroup
constexpr int kWaveRows = 16;  // of the result, a wave
constexpr int kRowBytes = 32;  // of an operand
constexpr int kFp8SumBits = 14;
constexpr uint32_t kPoisonWord = 0xFFFFFFFFu;

using Row = std::array<uint8_t, kRowBytes>;

// ---- Where the elements lie -------------------------------------------------

// Of d[i] of a lane; rows count from the wave's first.
int ResultRow(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
int ResultColumn(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

// `words` of 4 bytes a lane, as a[] and b[] of the products have them.
std::vector<Row> RowsOfRegisters(const uint32_t* const* words, int rows) {
  std::vector<Row> result(static_cast<size_t>(rows));
  const int halves = rows / 8;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 2 * halves; ++i) {
      const int row = lane / 4 + i % halves * 8;
      const int byte = lane % 4 * 4 + i / halves * 16;
      std::memcpy(&result[static_cast<size_t>(row)][static_cast<size_t>(byte)],
                  &words[lane][i], sizeof(uint32_t));
    }
  }
  return result;
}

// A descriptor's fields, in bytes.
struct Tile {
  explicit Tile(uint64_t bits)
      : start(Field(bits, 0)),
        column(Field(bits, 16)),
        group(Field(bits, 32)),
        swizzle(static_cast<int>(bits >> 62)) {}
  static uint32_t Field(uint64_t bits, int shift) {
    return static_cast<uint32_t>(bits >> shift & 0x3fff) * 16;
  }
  // Of the 16-byte column c, 0 or 1, of a row.
  uint32_t Offset(int row, int c) const {
    const auto r = static_cast<uint32_t>(row % 8);
    const uint32_t at = start + static_cast<uint32_t>(row / 8) * group;
    const auto col = static_cast<uint32_t>(c);
    if (swizzle == 0) return at + r * 16 + col * column;
    return Swizzled128(at + r * 128 + col * 16);
  }

  uint32_t start;
  uint32_t column;
  uint32_t group;
  int swizzle;  // 1: 128 bytes, 0: none
};

std::vector<Row> RowsOfTile(uint64_t descriptor, int first, int count) {
  const Tile tile(descriptor);
  if (tile.swizzle > 1) Fail("a descriptor of an unknown swizzle");
  std::vector<Row> rows(static_cast<size_t>(count));
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < 2; ++c) {
      const uint32_t offset = tile.Offset(first + r, c);
      if (offset + 16 > machine->block->shared_bytes) {
        Fail("an operand that ends outside of the block's shared memory");
      }
      ReadForProducts(offset, &rows[static_cast<size_t>(r)][16u * c]);
    }
  }
  return rows;
}

// ---- Arithmetic -------------------------------------------------------------

float FromF8(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  float magnitude;
  if ((code & 0x7f) == 0x7f) {
    magnitude = std::bit_cast<float>(kPoisonWord);
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -9);
  } else {
    magnitude = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return code & 0x80 ? -magnitude : magnitude;
}

// Elements of rows, one row after another.
std::vector<float> Elements(const std::vector<Row>& rows, DType type) {
  std::vector<float> elements;
  for (const Row& row : rows) {
    if (type == DType::kF8E4M3Fn) {
      for (const uint8_t code : row) elements.push_back(FromF8(code));
      continue;
    }
    for (size_t i = 0; i < row.size(); i += 2) {
      const auto bits = static_cast<uint16_t>(row[i] | row[i + 1] << 8);
      elements.push_back(type == DType::kBF16 ? ToFloat(BF16{bits})
                                              : ToFloat(F16{bits}));
    }
  }
  return elements;
}

// start + a[0] b[0] + a[1] b[1] + …, `count` products.
float SumExact(float start, const float* a, const float* b, int count) {
  double sum = static_cast<double>(start);
  for (int i = 0; i < count; ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return static_cast<float>(sum);
}
float SumFp8(float start, const float* a, const float* b, int count) {
  float terms[kRowBytes + 1] = {start};
  for (int i = 0; i < count; ++i) terms[i + 1] = a[i] * b[i];
  float largest = 0.0f, sum = 0.0f;
  for (const float term : terms) {
    largest = std::max(largest, std::fabs(term));
    sum += term;
  }
  if (!std::isfinite(sum) || largest == 0.0f) return sum;
  const int unit = std::ilogb(largest) - (kFp8SumBits - 1);
  const float scale = std::ldexp(1.0f, -unit);
  int32_t units = 0;
  for (const float term : terms) units += static_cast<int32_t>(term * scale);
  return std::ldexp(static_cast<float>(units), unit);
}

// Lane by lane, d[i] += a * b^T at the elements that the lane holds.
void AddProducts(DType type, const std::vector<Row>& a,
                 const std::vector<Row>& b,
                 std::vector<std::vector<float>>& d) {
  const std::vector<float> left = Elements(a, type), right = Elements(b, type);
  const int count = type == DType::kF8E4M3Fn ? kRowBytes : kRowBytes / 2;
  for (int lane = 0; lane < kLanes; ++lane) {
    std::vector<float>& sums = d[static_cast<size_t>(lane)];
    for (size_t i = 0; i < sums.size(); ++i) {
      const int index = static_cast<int>(i);
      const float* row =
          &left[static_cast<size_t>(ResultRow(lane, index) * count)];
      const float* column =
          &right[static_cast<size_t>(ResultColumn(lane, index) * count)];
      sums[i] = type == DType::kF8E4M3Fn
                    ? SumFp8(sums[i], row, column, count)
                    : SumExact(sums[i], row, column, count);
    }
  }
}

// ---- Products under way -----------------------------------------------------

// Of one wave.
struct Product {
  WarpgroupProduct what;  // as the first lane has given it
  uint64_t group = 0;
  int warpgroup_wave = 0;
  std::vector<Row> a, b;  // as they were at the start
  std::array<float*, kLanes> d;
  // What is added to; without it, the result of the product before.
  bool continues = false;
  std::vector<std::vector<float>> sums;  // lane by lane
};

struct WaveState {
  std::vector<Product> under_way;
  uint64_t groups = 0;  // that are closed
  bool fenced = false;
  uint64_t made = 0;  // a digest of the products that it has made
};

struct MatrixBlock : BlockPart {
  std::vector<WaveState> waves;
  void AtEnd(const Block& block) override {
    for (size_t wave = 0; wave < waves.size(); ++wave) {
      if (!waves[wave].under_way.empty()) {
        Fail("products that nothing waits for", block, static_cast<int>(wave));
      }
      if (waves[wave].made != waves[wave / kWaves * kWaves].made) {
        Fail("the waves of a warpgroup have made different products", block,
             static_cast<int>(wave));
      }
    }
  }
};

WaveState& WaveOf(Block& block, int wave) {
  if (block.matrix == nullptr) {
    auto matrix = std::make_unique<MatrixBlock>();
    matrix->waves.resize(block.lanes.size() / kLanes);
    block.matrix = std::move(matrix);
  }
  return static_cast<MatrixBlock&>(*block.matrix)
      .waves[static_cast<size_t>(wave)];
}
WaveState& ThisWave() { return WaveOf(*machine->block, Wave()); }

bool Poisoned(const float* d, size_t count) {
  return std::all_of(d, d + count, [](const float& x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits == kPoisonWord;
  });
}

std::vector<Row> RowsOfA(const Product& product) {
  return RowsOfTile(product.what.a, product.warpgroup_wave * kWaveRows,
                    kWaveRows);
}
std::vector<Row> RowsOfB(const Product& product) {
  return RowsOfTile(product.what.b, 0, product.what.columns);
}

void PoisonWhatChanged(std::vector<Row>& rows, const std::vector<Row>& now) {
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) {
      if (rows[r][i] != now[r][i]) rows[r][i] = kPoison;
    }
  }
}

void Start(void* const* parts, int) {
  WaveState& wave = ThisWave();
  Product product;
  product.what = *static_cast<const WarpgroupProduct*>(parts[0]);
  const WarpgroupProduct& what = product.what;
  product.group = wave.groups;
  product.warpgroup_wave = Wave() % kWaves;
  const auto count = static_cast<size_t>(what.columns / 2);
  std::array<const uint32_t*, kLanes> registers;
  for (size_t i = 0; i < kLanes; ++i) {
    const auto& part = *static_cast<const WarpgroupProduct*>(parts[i]);
    if (part.a != what.a || part.b != what.b ||
        part.accumulate != what.accumulate) {
      Fail("lanes that give a product different operands");
    }
    product.d[i] = part.d;
    registers[i] = part.registers;
  }

  for (const Product& earlier : wave.under_way) {
    product.continues = product.continues || earlier.d[0] == what.d;
  }
  if (!product.continues && !wave.fenced) {
    Fail("a product without WarpgroupFence before it");
  }
  for (float* d : product.d) {
    if (product.continues && !Poisoned(d, count)) {
      Fail("the result of a product under way has been written");
    }
    product.sums.emplace_back(d, d + count);
    if (!what.accumulate) product.sums.back().assign(count, 0.0f);
    std::memset(d, kPoison, count * sizeof(float));
  }
  product.a = what.registers == nullptr
                  ? RowsOfA(product)
                  : RowsOfRegisters(registers.data(), kWaveRows);
  product.b = RowsOfB(product);
  for (const uint64_t word :
       {what.a, what.b, static_cast<uint64_t>(what.columns),
        static_cast<uint64_t>(what.accumulate)}) {
    wave.made = (wave.made ^ word) * 0x9e3779b97f4a7c15 + 1;
  }
  wave.under_way.push_back(std::move(product));
}

// The oldest.
void Finish(WaveState& wave) {
  Product product = std::move(wave.under_way.front());
  wave.under_way.erase(wave.under_way.begin());
  if (product.what.registers == nullptr) {
    PoisonWhatChanged(product.a, RowsOfA(product));
  }
  PoisonWhatChanged(product.b, RowsOfB(product));
  AddProducts(product.what.type, product.a, product.b, product.sums);

  for (Product& next : wave.under_way) {
    if (next.d[0] != product.d[0]) continue;
    if (next.what.accumulate) next.sums = std::move(product.sums);
    return;
  }
  for (size_t i = 0; i < kLanes; ++i) {
    const std::vector<float>& lane = product.sums[i];
    if (!Poisoned(product.d[i], lane.size())) {
      Fail("the result of a product under way has been written");
    }
    std::memcpy(product.d[i], lane.data(), lane.size() * sizeof(float));
  }
}

void Wait(void* const* parts, int) {
  WaveState& wave = ThisWave();
  const auto pending = static_cast<uint64_t>(*static_cast<int*>(parts[0]));
  while (!wave.under_way.empty() &&
         wave.under_way.front().group + pending < wave.groups) {
    Finish(wave);
  }
  wave.fenced = false;
}

struct WavePart {
  DType type;
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};
void AddWaveProduct(void* const* parts, int) {
  std::array<const uint32_t*, kLanes> a, b;
  std::vector<std::vector<float>> sums;
  for (size_t i = 0; i < kLanes; ++i) {
    const auto& part = *static_cast<const WavePart*>(parts[i]);
    a[i] = part.a;
    b[i] = part.b;
    sums.emplace_back(part.d, part.d + 4);
  }
  AddProducts(static_cast<const WavePart*>(parts[0])->type,
              RowsOfRegisters(a.data(), kWaveRows),
              RowsOfRegisters(b.data(), 8), sums);
  for (size_t i = 0; i < kLanes; ++i) {
    std::copy(sums[i].begin(), sums[i].end(),
              static_cast<const WavePart*>(parts[i])->d);
  }
}

struct MatrixPart {
  uint32_t* r;
  const void* row;
  bool transposed;
};
void LoadMatrixParts(void* const* parts, int) {
  const auto part = [&](int lane) -> const MatrixPart& {
    return *static_cast<const MatrixPart*>(parts[lane]);
  };
  uint16_t value[4][8][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(value[lane / 8][lane % 8], part(lane).row, 16);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4, column = lane % 4 * 2;
      const bool transposed = part(lane).transposed;
      const uint32_t low =
          transposed ? value[i][column][row] : value[i][row][column];
      const uint32_t high =
          transposed ? value[i][column + 1][row] : value[i][row][column + 1];
      part(lane).r[i] = low | high << 16;
    }
  }
}

void TransposeParts(void* const* parts, int) {
  uint16_t value[8][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(&value[lane / 4][lane % 4 * 2], parts[lane], 4);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane % 4 * 2, column = lane / 4;
    const uint32_t low = value[row][column], high = value[row + 1][column];
    *static_cast<uint32_t*>(parts[lane]) = low | high << 16;
  }
}

void CheckWarpgroup() {
  if (machine->grid.wave_size != kLanes ||
      machine->grid.shape.threads % (kLanes * kWaves) != 0) {
    Fail("a warpgroup is four waves of 32 lanes");
  }
}

}  // namespace

uint64_t SwizzledTile(const void* shared) {
  const size_t offset = SharedOffset(shared, 0, "an operand");
  if (offset % kSharedAlignment != 0) Fail("a misaligned swizzled operand");
  return uint64_t{1} << 62 | uint64_t{1024 / 16} << 32 | uint64_t{1} << 16 |
         offset / 16;
}
uint64_t PlainTile(const void* shared, int column_bytes, int group_bytes) {
  const size_t offset = SharedOffset(shared, 0, "an operand");
  if (offset % 16 != 0 || column_bytes % 16 != 0 || group_bytes % 16 != 0) {
    Fail("a misaligned operand");
  }
  return static_cast<uint64_t>(group_bytes / 16) << 32 |
         static_cast<uint64_t>(column_bytes / 16) << 16 | offset / 16;
}

void StartProduct(const WarpgroupProduct& product) {
  CheckWarpgroup();
  WarpgroupProduct part = product;
  const int64_t tag = static_cast<int64_t>(product.type) << 32 |
                      product.columns << 1 | (product.registers != nullptr);
  Perform({Start, tag}, &part);
}

void WarpgroupFence() {
  CheckWarpgroup();
  Perform({[](void* const*, int) { ThisWave().fenced = true; }, 0}, nullptr);
}
void WarpgroupCommit() {
  CheckWarpgroup();
  Perform({[](void* const*, int) { ++ThisWave().groups; }, 0}, nullptr);
}
void WarpgroupWait(int pending_groups) {
  CheckWarpgroup();
  Perform({Wait, pending_groups}, &pending_groups);
}

void WaveProduct(DType type, float* d, const uint32_t* a, const uint32_t* b) {
  if (machine->grid.wave_size != kLanes) Fail("a wave has 32 lanes");
  WavePart part{type, d, a, b};
  Perform({AddWaveProduct, static_cast<int64_t>(type)}, &part);
}

void LoadMatrices(uint32_t* r, const void* row, bool transposed) {
  if (machine->grid.wave_size != kLanes) Fail("a wave has 32 lanes");
  if (SharedOffset(row, 16, "a row of a matrix") % 16 != 0) {
    Fail("a misaligned row of a matrix");
  }
  MatrixPart part{r, row, transposed};
  Perform({LoadMatrixParts, transposed}, &part);
}

uint32_t TransposeMatrix(uint32_t r) {
  if (machine->grid.wave_size != kLanes) Fail("a wave has 32 lanes");
  Perform({TransposeParts, 0}, &r);
  return r;
}

}  // namespace lamina::simt
