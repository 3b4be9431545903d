#pragma once

// Zeroed memory that is only backed where it is touched, for offsets that
// nobody has the memory for. Every device of tests/support/test_device.h
// reaches it.

#include <cstdint>

namespace lamina::testing {

class SparseMemory {
 public:
  explicit SparseMemory(int64_t bytes);
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory();

  // False when there is no address space.
  bool ok() const { return data_ != nullptr; }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  int64_t bytes_;
  void* data_;
};

// A GPU build's own way to get such memory, when LAMINA_TEST_DEVICE is a GPU
// (tests/support/pinned_memory.h); absent elsewhere.
[[gnu::weak]] void* AllocateManaged(int64_t bytes);
[[gnu::weak]] void FreeManaged(void* data);

}  // namespace lamina::testing
