#pragma once

// Arrays that a benchmark goes round in: one for each working set.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/float16.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/quant/fp8.h"

namespace lamina::bench {

// `sets` arrays of `elements`, each with the same random values, in memory of
// the stream's device. Cheap to copy; copies share the memory, so that calls
// can hold it by value. Without enough memory the program ends.
template <class T>
class WorkingSets {
 public:
  WorkingSets(const Stream& stream, int64_t sets, int64_t elements,
              float low = -1.0f, float high = 1.0f)
      : stream_(stream),
        // Every array begins at a multiple of 256 bytes.
        pitch_(RoundUp(elements * int64_t{sizeof(T)}, 256)),
        elements_(elements) {
    absl::StatusOr<Buffer> buffer =
        Buffer::Allocate(stream.device(), std::max(sets * pitch_, pitch_));
    if (!buffer.ok()) Fail(buffer.status());
    buffer_ = std::make_shared<Buffer>(*std::move(buffer));
    values_ = std::make_shared<std::vector<T>>(
        static_cast<std::size_t>(std::min(elements, kPeriod)));
    uint64_t state = 1;
    for (T& value : *values_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float uniform = static_cast<float>(state >> 40) * 0x1p-24f;
      if constexpr (std::is_integral_v<T>) {
        value = 0;
      } else {
        value = FromFloat<T>(low + (high - low) * uniform);
      }
    }
    for (int64_t set = 0; set < sets; ++set) Reset(set);
  }

  T* operator[](int64_t set) const {
    return reinterpret_cast<T*>(buffer_->as<char>() + set * pitch_);
  }

  // Gives a set its first values back.
  void Reset(int64_t set) const {
    for (int64_t first = 0; first < elements_; first += kPeriod) {
      const int64_t count = std::min(kPeriod, elements_ - first);
      const absl::Status status =
          EnqueueCopy((*this)[set] + first, values_->data(),
                      count * int64_t{sizeof(T)}, stream_);
      if (!status.ok()) Fail(status);
    }
    const absl::Status status = Synchronize(stream_);
    if (!status.ok()) Fail(status);
  }

 private:
  // Values repeat after so many; no multiple of any row.
  static constexpr int64_t kPeriod = 1000003;

  [[noreturn]] static void Fail(const absl::Status& status) {
    std::fprintf(stderr, "bench: %s\n", status.ToString().c_str());
    std::exit(3);
  }

  Stream stream_;
  int64_t pitch_;
  int64_t elements_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<std::vector<T>> values_;
};

}  // namespace lamina::bench
