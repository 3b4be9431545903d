// For test programs of a GPU build: with LAMINA_TEST_DEVICE=cuda (or hip),
// operator new and the main thread's stack are memory that the host and the GPU
// both reach, and launches are synchronous. So the tests of the CPU kernels
// test the GPU's unchanged.

#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "gtest/gtest.h"
#include "tests/support/pinned_memory.h"
#include "tests/support/test_device.h"

namespace {

constexpr size_t kArenaBytes = size_t{2} << 30;
constexpr size_t kHeader = 64;
constexpr int kClasses = 40;

// Blocks of powers of two, kept for reuse.
class Arena {
 public:
  // What is allocated before is the host's alone. NOTE: not in a constructor:
  // compute-sanitizer must be there before CUDA is.
  void Open() {
    lamina::testing::MakeLaunchesSynchronous();
    begin_ = next_ =
        static_cast<uint8_t*>(lamina::testing::AllocatePinned(kArenaBytes));
    if (begin_ != nullptr) end_ = begin_ + kArenaBytes;
  }

  void* Allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    int size_class = 7;
    while ((size_t{1} << size_class) < bytes + kHeader) ++size_class;
    uint8_t* block = static_cast<uint8_t*>(free_[size_class]);
    if (block != nullptr) {
      std::memcpy(&free_[size_class], block, sizeof(void*));
    } else {
      const size_t size = size_t{1} << size_class;
      if (begin_ == nullptr || static_cast<size_t>(end_ - next_) < size) {
        return std::malloc(bytes == 0 ? 1 : bytes);
      }
      block = next_;
      next_ += size;
    }
    std::memcpy(block, &size_class, sizeof(size_class));
    return block + kHeader;
  }

  void Free(void* pointer) {
    if (pointer == nullptr) return;
    uint8_t* const byte = static_cast<uint8_t*>(pointer);
    if (byte < begin_ || byte >= end_) {
      std::free(pointer);
      return;
    }
    const std::lock_guard lock(mutex_);
    uint8_t* const block = byte - kHeader;
    int size_class = 0;
    std::memcpy(&size_class, block, sizeof(size_class));
    std::memcpy(block, &free_[size_class], sizeof(void*));
    free_[size_class] = block;
  }

 private:
  std::mutex mutex_;
  uint8_t* begin_ = nullptr;
  uint8_t* next_ = nullptr;
  uint8_t* end_ = nullptr;
  void* free_[kClasses] = {};
};

Arena& TheArena() {
  // NOTE: never destroyed: memory is freed after the end of main.
  alignas(Arena) static unsigned char storage[sizeof(Arena)];
  static Arena* const arena = ::new (storage) Arena;
  return *arena;
}

}  // namespace

void* operator new(size_t bytes) {
  void* const pointer = TheArena().Allocate(bytes);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* pointer) noexcept { TheArena().Free(pointer); }
void operator delete[](void* pointer) noexcept { TheArena().Free(pointer); }
void operator delete(void* pointer, size_t) noexcept {
  TheArena().Free(pointer);
}
void operator delete[](void* pointer, size_t) noexcept {
  TheArena().Free(pointer);
}

// In place of GoogleTest's: tests keep scales and short rows on the stack.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto run = +[](void* result) -> void* {
    *static_cast<int*>(result) = RUN_ALL_TESTS();
    return nullptr;
  };
  if (!lamina::testing::OnCpu()) TheArena().Open();
  int result = 1;
  constexpr size_t kStackBytes = size_t{8} << 20;
  void* const stack = lamina::testing::OnCpu()
                          ? nullptr
                          : lamina::testing::AllocatePinned(kStackBytes);
  if (stack == nullptr) {
    run(&result);
    return result;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kStackBytes);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, run, &result) != 0) return 1;
  pthread_join(thread, nullptr);
  return result;
}
