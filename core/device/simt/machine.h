#pragma once

// What the parts of host SIMT share: lanes, blocks, and what is under way
// beside them. Kernels see executor.h, async.h and matrix.h.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "lamina/core/device/simt/executor.h"

namespace lamina::simt {

inline constexpr int kMaxWaveSize = 64;
inline constexpr uint8_t kPoison = 0xFF;  // NaN
// As a GPU gives it; swizzled tiles count on it.
inline constexpr size_t kSharedAlignment = 1024;

// What a lane waits for and others bring about.
class Condition {
 public:
  virtual bool Holds() const = 0;
  // For the report that it never will.
  virtual std::string Describe() const = 0;

 protected:
  ~Condition() = default;
};

// What all lanes of a wave do together: performed once, by the scheduler, with
// what each lane brings. The lane that runs is then the first of the wave.
struct Exchange {
  void (*perform)(void* const* parts, int lanes) = nullptr;
  int64_t tag = 0;  // must be the same in all lanes
  friend bool operator==(const Exchange&, const Exchange&) = default;
};

enum class State {
  kReady,
  kExchange,
  kCondition,
  kGroupSync,
  kBlockSync,
  kClusterSync,
  kDone
};

struct Lane {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  State state = State::kReady;
  Exchange exchange;
  void* part = nullptr;
  const Condition* condition = nullptr;
  int barrier = 0;
  int barrier_threads = 0;
};

struct AlignedDelete {
  void operator()(uint8_t* bytes) const {
    ::operator delete[](bytes, std::align_val_t{kSharedAlignment});
  }
};

struct Block;
// What a part keeps for a block, from its first use on.
class BlockPart {
 public:
  virtual ~BlockPart() = default;
  // All lanes are done.
  virtual void AtEnd(const Block&) {}
};

struct Block {
  int64_t index = 0;
  int rank = 0;
  std::vector<Lane> lanes;
  // A heap block of its own, so that the sanitizer sees its end.
  std::unique_ptr<uint8_t[], AlignedDelete> shared;
  size_t shared_bytes = 0;
  std::vector<int> elected;  // of each wave
  std::unique_ptr<BlockPart> async, matrix;
};

// Something that happens in its own time.
struct Event {
  const Block* block = nullptr;
  bool lost_at_end = false;  // a fault when its block ends before
  std::function<void()> happen;
};

// All that one host thread runs: the blocks of one cluster.
struct Machine {
  Grid grid;
  void (*kernel)(const void*) = nullptr;
  const void* args = nullptr;
  std::vector<Block> blocks;
  std::vector<Event> events;
  std::mt19937 random;
  void* scheduler = nullptr;
  // The lane that runs.
  Block* block = nullptr;
  int lane = 0;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
};

// Of this host thread, while it runs a kernel.
extern constinit thread_local Machine* machine;

// The lane that runs, and its wave.
inline Lane& Self() {
  return machine->block->lanes[static_cast<size_t>(machine->lane)];
}
inline int Wave() { return machine->lane / machine->grid.wave_size; }

// ---- fibers.cc --------------------------------------------------------------

// A lane at the kernel's first line, on the stack of that index.
void Prepare(Lane& lane, size_t index);
// From the scheduler to a lane, until it parks.
void Resume(Block& block, int lane);
// From a lane back to the scheduler.
void Park(State state);

// ---- executor.cc ------------------------------------------------------------

// Ends the program with one line.
[[noreturn]] void Fail(const std::string& what, const Block& block, int wave);
[[noreturn]] void Fail(const std::string& what);  // in the lane that runs

void WaitFor(const Condition& condition);
void Perform(const Exchange& exchange, void* part);
// Where a pointer into the block's shared memory points; `bytes` from there on
// are the block's. Fails with `what` otherwise.
size_t SharedOffset(const void* pointer, size_t bytes, const char* what);

}  // namespace lamina::simt
