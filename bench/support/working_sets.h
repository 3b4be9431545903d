#pragma once

// Arrays that a benchmark goes round in: one for each working set.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lamina/core/float16.h"
#include "lamina/quant/fp8.h"

namespace lamina::bench {

// Cheap to copy; copies share the memory, so that calls can hold it by value.
template <class T>
class WorkingSets {
 public:
  // Small values of both signs.
  WorkingSets(int64_t sets, int64_t elements)
      : elements_(elements),
        data_(std::make_shared<std::vector<T>>(
            static_cast<std::size_t>(sets * elements))) {
    for (std::size_t i = 0; i < data_->size(); ++i) {
      (*data_)[i] = FromFloat<T>(static_cast<float>(i % 17) * 0.25f - 2.0f);
    }
  }
  T* operator[](int64_t set) const { return data_->data() + set * elements_; }

 private:
  int64_t elements_;
  std::shared_ptr<std::vector<T>> data_;
};

}  // namespace lamina::bench
