#include "lamina/core/device/simt/executor.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers and the stack pointer of one fiber and
// restores those of another.
extern "C" void lamina_simt_switch(void** from, void* to);
asm(R"(
.text
.globl lamina_simt_switch
.type lamina_simt_switch, @function
lamina_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lamina_simt_switch, . - lamina_simt_switch
)");
#else
#error "host SIMT switches fibers on x86-64 only"
#endif

namespace lamina::simt {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kMaxWaveSize = 64;
constexpr uint8_t kPoison = 0xFF;  // NaN

enum class State { kReady, kShuffle, kBlockSync, kClusterSync, kDone };
const char* Name(State state) {
  switch (state) {
    case State::kReady:
      return "running";
    case State::kShuffle:
      return "an exchange between lanes";
    case State::kBlockSync:
      return "a barrier of the block";
    case State::kClusterSync:
      return "a barrier of the cluster";
    case State::kDone:
      return "the end";
  }
  return "";
}

struct Lane {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  State state = State::kReady;
  uint64_t value = 0;
  int mask = 0;
};

struct Block {
  int64_t index = 0;
  int rank = 0;
  std::vector<Lane> lanes;
  // A heap block of its own, so that the sanitizer sees its end.
  std::unique_ptr<uint8_t[]> shared;
};

// All that one host thread runs: the blocks of one cluster.
struct Machine {
  Grid grid;
  void (*kernel)(const void*) = nullptr;
  const void* args = nullptr;
  std::vector<Block> blocks;
  std::mt19937 random;
  void* scheduler = nullptr;
  // The lane that runs.
  Block* block = nullptr;
  int lane = 0;
#if defined(__SANITIZE_ADDRESS__)
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
#endif
};

thread_local Machine* machine = nullptr;

[[noreturn]] void Fail(const char* what, const Block& block, int wave) {
  std::fprintf(stderr, "host SIMT: %s (block %lld, wave %d)\n", what,
               static_cast<long long>(block.index), wave);
  std::abort();
}

// From a lane back to the scheduler.
void Park(State state) {
  Machine& m = *machine;
  Lane& lane = m.block->lanes[static_cast<size_t>(m.lane)];
  lane.state = state;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(state == State::kDone ? nullptr : &fake_stack,
                                 m.scheduler_stack, m.scheduler_stack_bytes);
#endif
  lamina_simt_switch(&lane.stack_pointer, m.scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &machine->scheduler_stack,
                                  &machine->scheduler_stack_bytes);
#endif
}

void RunLane() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &machine->scheduler_stack,
                                  &machine->scheduler_stack_bytes);
#endif
  machine->kernel(machine->args);
  Park(State::kDone);
  std::abort();  // a lane that is done is never resumed
}

// From the scheduler to a lane, until it parks.
void Resume(Block& block, int lane_index) {
  Machine& m = *machine;
  m.block = &block;
  m.lane = lane_index;
  Lane& lane = block.lanes[static_cast<size_t>(lane_index)];
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, lane.stack, kStackBytes);
#endif
  lamina_simt_switch(&m.scheduler, lane.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

// Stacks are kept for the next launch on this host thread.
class StackPool {
 public:
  ~StackPool() {
    for (char* stack : stacks_) munmap(stack, kStackBytes);
  }
  char* Get(size_t index) {
    while (stacks_.size() <= index) {
      void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) {
        std::fprintf(stderr, "host SIMT: no memory for a lane's stack\n");
        std::abort();
      }
      stacks_.push_back(static_cast<char*>(stack));
    }
    return stacks_[index];
  }

 private:
  std::vector<char*> stacks_;
};
thread_local StackPool stack_pool;

void Prepare(Lane& lane, char* stack) {
  lane = {};
  lane.stack = stack;
  // Six registers, the address of RunLane, and a place for its return address,
  // which leaves the stack aligned as at a call.
  void** top = reinterpret_cast<void**>(stack + kStackBytes) - 2;
  top[0] = reinterpret_cast<void*>(&RunLane);
  top[1] = nullptr;
  for (int i = 1; i <= 6; ++i) top[-i] = nullptr;
  lane.stack_pointer = top - 6;
}

// Runs the lanes of one wave until each of them waits for something, and
// completes exchanges within it.
void RunWave(Block& block, int wave) {
  const int size = machine->grid.wave_size;
  const int begin = wave * size;
  for (;;) {
    for (int i = begin; i < begin + size; ++i) {
      if (block.lanes[static_cast<size_t>(i)].state == State::kReady) {
        Resume(block, i);
      }
    }
    const Lane* lanes = &block.lanes[static_cast<size_t>(begin)];
    bool exchange = false;
    for (int i = 0; i < size; ++i) {
      exchange = exchange || lanes[i].state == State::kShuffle;
    }
    if (!exchange) return;
    uint64_t values[kMaxWaveSize];
    for (int i = 0; i < size; ++i) {
      if (lanes[i].state != State::kShuffle || lanes[i].mask != lanes[0].mask) {
        Fail("lanes of a wave at different exchanges", block, wave);
      }
      values[i] = lanes[i ^ lanes[i].mask].value;
    }
    for (int i = 0; i < size; ++i) {
      Lane& lane = block.lanes[static_cast<size_t>(begin + i)];
      lane.value = values[i];
      lane.state = State::kReady;
    }
  }
}

// True when all lanes wait at `barrier`, false when none does.
bool AllAt(const Block& block, State barrier) {
  int waiting = 0;
  State other = barrier;
  for (const Lane& lane : block.lanes) {
    if (lane.state == barrier) {
      ++waiting;
    } else {
      other = lane.state;
    }
  }
  if (waiting == 0 || other == barrier) return waiting > 0;
  std::fprintf(stderr, "host SIMT: some lanes are at %s, others at %s\n",
               Name(barrier), Name(other));
  Fail("a barrier that some lanes do not reach", block, 0);
}

void Release(Block& block) {
  for (Lane& lane : block.lanes) lane.state = State::kReady;
}

void RunCluster(int64_t first_block) {
  Machine& m = *machine;
  const gpu::LaunchShape& shape = m.grid.shape;
  const size_t threads = static_cast<size_t>(shape.threads);
  const int waves = shape.threads / m.grid.wave_size;
  struct WaveOf {
    Block* block;
    int wave;
  };
  std::vector<WaveOf> order;
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    Block& block = m.blocks[b];
    block.rank = static_cast<int>(b);
    block.index = first_block + block.rank;
    block.lanes.resize(threads);
    const size_t shared = static_cast<size_t>(shape.shared_bytes);
    block.shared.reset(new uint8_t[shared]);
    std::memset(block.shared.get(), kPoison, shared);
    for (size_t i = 0; i < threads; ++i) {
      Prepare(block.lanes[i], stack_pool.Get(b * threads + i));
    }
    for (int wave = 0; wave < waves; ++wave) order.push_back({&block, wave});
  }

  for (bool done = false; !done;) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[m.random() % i]);
    }
    for (const WaveOf& next : order) RunWave(*next.block, next.wave);

    done = true;
    bool cluster_barrier = false;
    for (Block& block : m.blocks) {
      if (AllAt(block, State::kBlockSync)) {
        Release(block);
        done = false;
      }
      cluster_barrier = AllAt(block, State::kClusterSync) || cluster_barrier;
    }
    if (!cluster_barrier || !done) continue;
    for (Block& block : m.blocks) {
      if (!AllAt(block, State::kClusterSync)) {
        Fail("a barrier of the cluster that a block does not reach", block, 0);
      }
    }
    for (Block& block : m.blocks) Release(block);
    done = false;
  }
}

}  // namespace

void Run(const Grid& grid, void (*kernel)(const void*), const void* args) {
  const gpu::LaunchShape& shape = grid.shape;
  if (shape.blocks < 0 || shape.threads <= 0 || shape.threads > 1024 ||
      shape.blocks > gpu::MaxBlocks(shape.threads) ||
      shape.threads % grid.wave_size != 0 || shape.cluster_blocks < 1 ||
      shape.cluster_blocks > 8 || shape.blocks % shape.cluster_blocks != 0) {
    std::fprintf(stderr,
                 "host SIMT: a GPU cannot launch %lld blocks of %d threads in "
                 "clusters of %d at wave size %d\n",
                 static_cast<long long>(shape.blocks), shape.threads,
                 shape.cluster_blocks, grid.wave_size);
    std::abort();
  }
  const char* seed = std::getenv("LAMINA_SIMT_SEED");
  Machine here;
  here.grid = grid;
  here.kernel = kernel;
  here.args = args;
  here.random.seed(seed == nullptr ? 1u
                                   : static_cast<unsigned>(std::atoi(seed)));
  here.blocks.resize(static_cast<size_t>(shape.cluster_blocks));
  machine = &here;
  for (int64_t block = 0; block < shape.blocks; block += shape.cluster_blocks) {
    RunCluster(block);
  }
  machine = nullptr;
}

int ThreadIndex() { return machine->lane; }
int BlockThreads() { return machine->grid.shape.threads; }
int64_t BlockIndex() { return machine->block->index; }
int64_t BlockCount() { return machine->grid.shape.blocks; }
int WaveSize() { return machine->grid.wave_size; }
int ClusterRank() { return machine->block->rank; }
int ClusterBlocks() { return machine->grid.shape.cluster_blocks; }

void BlockSync() { Park(State::kBlockSync); }
void ClusterSync() { Park(State::kClusterSync); }

uint64_t ShuffleXor(uint64_t value, int mask) {
  Machine& m = *machine;
  if (mask < 0 || mask >= m.grid.wave_size) {
    Fail("an exchange past the wave", *m.block, m.lane / m.grid.wave_size);
  }
  Lane& lane = m.block->lanes[static_cast<size_t>(m.lane)];
  lane.value = value;
  lane.mask = mask;
  Park(State::kShuffle);
  return lane.value;
}

void* SharedMemory() { return machine->block->shared.get(); }

void* MapShared(void* pointer, int rank) {
  Machine& m = *machine;
  if (rank < 0 || rank >= ClusterBlocks()) {
    Fail("a block that the cluster does not have", *m.block, 0);
  }
  const int64_t offset = static_cast<uint8_t*>(pointer) - m.block->shared.get();
  return m.blocks[static_cast<size_t>(rank)].shared.get() + offset;
}

}  // namespace lamina::simt
