#include "tests/support/sparse_memory.h"

#include <sys/mman.h>

#include "tests/support/test_device.h"

namespace lamina::testing {
namespace {

bool Managed() { return AllocateManaged != nullptr && !OnCpu(); }

}  // namespace

SparseMemory::SparseMemory(int64_t bytes) : bytes_(bytes) {
  if (Managed()) {
    data_ = AllocateManaged(bytes);
    return;
  }
  void* const data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  data_ = data == MAP_FAILED ? nullptr : data;
}

SparseMemory::~SparseMemory() {
  if (data_ == nullptr) return;
  if (Managed()) {
    FreeManaged(data_);
  } else {
    munmap(data_, static_cast<size_t>(bytes_));
  }
}

}  // namespace lamina::testing
