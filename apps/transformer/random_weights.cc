// Random weights.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/float16.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"
#include "lamina/quant/fp8.h"
#include "lamina/transformer/weights.h"

namespace lamina::transformer_internal {
namespace {

// Elements of a stretch that a GPU gets from the host.
constexpr int64_t kStretch = (int64_t{1} << 23) + 4096;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void FillOnHost(void* data, DType type, int64_t count, float amplitude,
                uint64_t seed, const Stream& stream) {
  ParallelFor(stream, count, 1 << 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t bits = Mix(seed + static_cast<uint64_t>(i) + 1);
      const float value =
          (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * amplitude;
      switch (type) {
        case DType::kBF16:
          static_cast<BF16*>(data)[i] = FromFloat<BF16>(value);
          break;
        case DType::kF16:
          static_cast<F16*>(data)[i] = FromFloat<F16>(value);
          break;
        case DType::kF32:
          static_cast<float*>(data)[i] = value;
          break;
        default: {
          const uint8_t code = static_cast<uint8_t>(bits);
          static_cast<uint8_t*>(data)[i] =
              (code & 0x7fu) == 0x7fu ? static_cast<uint8_t>(code ^ 1u) : code;
        }
      }
    }
  });
}

class RandomSource : public WeightSource {
 public:
  RandomSource(uint64_t seed, Stream stream) : seed_(seed), stream_(stream) {}

  absl::Status Fill(const std::string&, VectorView to) override {
    if (to.dtype == DType::kF32) return Constant(to.data, to.size, 1.0f);
    const auto one = to.dtype == DType::kBF16 ? FromFloat<BF16>(1.0f).bits
                                              : FromFloat<F16>(1.0f).bits;
    const std::vector<uint16_t> ones(static_cast<size_t>(to.size), one);
    return Copy(to.data, ones.data(), 2 * to.size, stream_);
  }
  absl::Status FillBf16(const std::vector<std::string>&,
                        MatrixView to) override {
    return FillRandom(to.data, to.dtype, to.rows * to.cols, Amplitude(to.cols),
                      Mix(++seed_), stream_);
  }
  absl::Status FillFp8(const std::vector<std::string>&, MatrixView codes,
                       float* scales, float* input_scale) override {
    *input_scale = 0.02f;
    LAMINA_RETURN_IF_ERROR(FillRandom(codes.data, codes.dtype,
                                      codes.rows * codes.cols, 1.0f,
                                      Mix(++seed_), stream_));
    return Constant(scales, codes.rows,
                    Amplitude(codes.cols) / MaxFinite(codes.dtype));
  }

 private:
  static float Amplitude(int64_t cols) {
    return 1.0f / std::sqrt(static_cast<float>(cols));
  }
  absl::Status Constant(void* to, int64_t count, float value) const {
    const std::vector<float> values(static_cast<size_t>(count), value);
    return Copy(to, values.data(), 4 * count, stream_);
  }

  uint64_t seed_;
  Stream stream_;
};

}  // namespace

absl::Status FillRandom(void* data, DType type, int64_t count, float amplitude,
                        uint64_t seed, const Stream& stream) {
  if (stream.device().backend == Backend::kCpu) {
    FillOnHost(data, type, count, amplitude, seed, stream);
    return absl::OkStatus();
  }
  int64_t done = std::min(count, kStretch);
  LAMINA_ASSIGN_OR_RETURN(const Buffer stretch,
                          Buffer::Allocate(Device{}, BytesFor(type, done)));
  FillOnHost(stretch.data(), type, done, amplitude, seed, Stream::Cpu());
  LAMINA_RETURN_IF_ERROR(
      Copy(data, stretch.data(), BytesFor(type, done), stream));
  // What is there, again behind itself.
  char* const begin = static_cast<char*>(data);
  while (done < count) {
    const int64_t more = std::min(done, count - done);
    LAMINA_RETURN_IF_ERROR(EnqueueCopy(begin + BytesFor(type, done), begin,
                                       BytesFor(type, more), stream));
    done += more;
  }
  return Synchronize(stream);
}

absl::StatusOr<ModelWeights> RandomWeights(const WeightsPlan& plan,
                                           uint64_t seed, Stream stream) {
  RandomSource source(seed, stream);
  return MakeWeights(plan, source, stream);
}

}  // namespace lamina::transformer_internal
