#include "lamina/core/device/simt/executor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "lamina/core/device/simt/machine.h"

namespace lamina::simt {
namespace {

constexpr int64_t kMaxSharedBytes = 227 << 10;  // sm_90
constexpr int kNamedBarriers = 16;              // barrier 0 is BlockSync's

const char* Name(State state) {
  switch (state) {
    case State::kReady:
      return "running";
    case State::kExchange:
      return "an exchange between lanes";
    case State::kCondition:
      return "a phaser";
    case State::kGroupSync:
      return "a barrier of some waves";
    case State::kBlockSync:
      return "a barrier of the block";
    case State::kClusterSync:
      return "a barrier of the cluster";
    case State::kDone:
      return "the end";
  }
  return "";
}

// Resumes the lanes of a wave that can go on. Returns whether any did.
bool ResumeLanes(Block& block, int begin) {
  bool any = false;
  for (int i = begin; i < begin + machine->grid.wave_size; ++i) {
    const Lane& lane = block.lanes[static_cast<size_t>(i)];
    if (lane.state == State::kReady ||
        (lane.state == State::kCondition && lane.condition->Holds())) {
      Resume(block, i);
      any = true;
    }
  }
  return any;
}

// Performs the exchange that all lanes of the wave have come to. Returns
// whether there was one.
bool PerformExchange(Block& block, int begin) {
  const int size = machine->grid.wave_size;
  Lane* lanes = &block.lanes[static_cast<size_t>(begin)];
  const Lane* first = nullptr;
  for (int i = 0; i < size; ++i) {
    if (lanes[i].state == State::kExchange) first = &lanes[i];
  }
  if (first == nullptr) return false;
  void* parts[kMaxWaveSize];
  bool all = true;
  for (int i = 0; i < size; ++i) {
    all = all && lanes[i].state == State::kExchange;
    // Others may still come, from what they wait for.
    if (lanes[i].state == State::kCondition) continue;
    if (lanes[i].state != State::kExchange ||
        lanes[i].exchange != first->exchange) {
      Fail("lanes of a wave at different exchanges", block, begin / size);
    }
    parts[i] = lanes[i].part;
  }
  if (!all) return false;
  machine->block = &block;
  machine->lane = begin;
  first->exchange.perform(parts, size);
  for (int i = 0; i < size; ++i) lanes[i].state = State::kReady;
  return true;
}

// Runs the lanes of one wave until each of them waits for something outside of
// it. Returns whether any ran.
bool RunWave(Block& block, int wave) {
  const int begin = wave * machine->grid.wave_size;
  bool any = false;
  while (ResumeLanes(block, begin) || PerformExchange(block, begin)) any = true;
  return any;
}

int Count(const Block& block, State state) {
  int count = 0;
  for (const Lane& lane : block.lanes) count += lane.state == state;
  return count;
}
bool All(const Block& block, State state) {
  return Count(block, state) == static_cast<int>(block.lanes.size());
}
void Release(Block& block) {
  for (Lane& lane : block.lanes) lane.state = State::kReady;
}

bool AllDone() {
  const std::vector<Block>& blocks = machine->blocks;
  return std::all_of(blocks.begin(), blocks.end(), [](const Block& block) {
    return All(block, State::kDone);
  });
}

// The lanes at a named barrier, and how many it is for; 0: none is there.
std::pair<int, int> AtBarrier(const Block& block, int barrier) {
  int count = 0, wanted = 0;
  for (size_t i = 0; i < block.lanes.size(); ++i) {
    const Lane& lane = block.lanes[i];
    if (lane.state != State::kGroupSync || lane.barrier != barrier) continue;
    if (wanted != 0 && lane.barrier_threads != wanted) {
      Fail("lanes that give a barrier different numbers of threads", block,
           static_cast<int>(i) / machine->grid.wave_size);
    }
    wanted = lane.barrier_threads;
    ++count;
  }
  return {count, wanted};
}

bool ReleaseGroups(Block& block) {
  if (Count(block, State::kGroupSync) == 0) return false;
  bool any = false;
  for (int barrier = 1; barrier < kNamedBarriers; ++barrier) {
    const auto [count, wanted] = AtBarrier(block, barrier);
    if (count == 0 || count < wanted) continue;
    if (count > wanted)
      Fail("more lanes at a barrier than it is for", block, 0);
    for (Lane& lane : block.lanes) {
      if (lane.state == State::kGroupSync && lane.barrier == barrier) {
        lane.state = State::kReady;
      }
    }
    any = true;
  }
  return any;
}

// Lets barriers go that all have reached. Returns whether there was one.
bool ReleaseBarriers() {
  bool any = false, cluster = true;
  for (Block& block : machine->blocks) {
    any = ReleaseGroups(block) || any;
    if (All(block, State::kBlockSync)) {
      Release(block);
      any = true;
    }
    cluster = cluster && All(block, State::kClusterSync);
  }
  if (cluster) {
    for (Block& block : machine->blocks) Release(block);
  }
  return any || cluster;
}

// One or more of the events that are under way, in random order.
bool LetEventsHappen() {
  Machine& m = *machine;
  if (m.events.empty()) return false;
  for (size_t left = 1 + m.random() % m.events.size(); left > 0; --left) {
    std::swap(m.events[m.random() % m.events.size()], m.events.back());
    const Event event = std::move(m.events.back());
    m.events.pop_back();
    event.happen();
  }
  return true;
}

// Nothing can go on, and not all lanes are done.
[[noreturn]] void ReportDeadlock() {
  for (const Block& block : machine->blocks) {
    for (size_t i = 0; i < block.lanes.size(); ++i) {
      if (block.lanes[i].state == State::kCondition) {
        Fail("lanes wait for ever: " + block.lanes[i].condition->Describe(),
             block, static_cast<int>(i) / machine->grid.wave_size);
      }
    }
    for (int barrier = 1; barrier < kNamedBarriers; ++barrier) {
      const auto [count, wanted] = AtBarrier(block, barrier);
      if (count == 0) continue;
      Fail("barrier " + std::to_string(barrier) + " has " +
               std::to_string(count) + " of its " + std::to_string(wanted) +
               " threads",
           block, 0);
    }
  }
  for (const Block& block : machine->blocks) {
    for (const State barrier : {State::kBlockSync, State::kClusterSync}) {
      if (Count(block, barrier) == 0 || All(block, barrier)) continue;
      for (const Lane& lane : block.lanes) {
        if (lane.state == barrier) continue;
        Fail(std::string(
                 "a barrier that some lanes do not reach: some are at ") +
                 Name(barrier) + ", others at " + Name(lane.state),
             block, 0);
      }
    }
  }
  Fail("a barrier of the cluster that a block does not reach",
       machine->blocks.front(), 0);
}

void Begin(Block& block, int rank, int64_t index) {
  Machine& m = *machine;
  const auto threads = static_cast<size_t>(m.grid.shape.threads);
  block = {};
  block.rank = rank;
  block.index = index;
  block.shared_bytes = static_cast<size_t>(m.grid.shape.shared_bytes);
  block.shared.reset(static_cast<uint8_t*>(::operator new[](
      block.shared_bytes, std::align_val_t{kSharedAlignment})));
  std::memset(block.shared.get(), kPoison, block.shared_bytes);
  block.lanes.resize(threads);
  for (size_t i = 0; i < threads; ++i) {
    Prepare(block.lanes[i], static_cast<size_t>(rank) * threads + i);
  }
  const auto wave_size = static_cast<unsigned>(m.grid.wave_size);
  for (size_t wave = 0; wave < threads / wave_size; ++wave) {
    block.elected.push_back(static_cast<int>(m.random() % wave_size));
  }
}

void End(Block& block) {
  for (const Event& event : machine->events) {
    if (event.block == &block && event.lost_at_end) {
      Fail("a bulk copy is under way when its block ends", block, 0);
    }
  }
  if (block.async != nullptr) block.async->AtEnd(block);
  if (block.matrix != nullptr) block.matrix->AtEnd(block);
}

void RunCluster(int64_t first_block) {
  Machine& m = *machine;
  struct WaveOf {
    Block* block;
    int wave;
  };
  std::vector<WaveOf> order;
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    const int rank = static_cast<int>(b);
    Begin(m.blocks[b], rank, first_block + rank);
    for (int wave = 0; wave < m.grid.shape.threads / m.grid.wave_size; ++wave) {
      order.push_back({&m.blocks[b], wave});
    }
  }
  // NOTE: events are late, so that a missing wait shows; in a quarter of the
  // clusters they are early, for the orders of waves that this brings.
  const bool early = first_block / m.grid.shape.cluster_blocks % 4 == 3;

  for (;;) {
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[m.random() % i]);
    }
    bool any = false;
    for (const WaveOf& next : order) {
      any = RunWave(*next.block, next.wave) || any;
    }
    any = ReleaseBarriers() || any;
    if (AllDone()) break;
    if (!any || early) any = LetEventsHappen() || any;
    if (!any) ReportDeadlock();
  }
  for (Block& block : m.blocks) End(block);
  m.events.clear();
}

}  // namespace

void Fail(const std::string& what, const Block& block, int wave) {
  std::fprintf(stderr, "host SIMT: %s (block %lld, wave %d)\n", what.c_str(),
               static_cast<long long>(block.index), wave);
  std::abort();
}
void Fail(const std::string& what) { Fail(what, *machine->block, Wave()); }

void WaitFor(const Condition& condition) {
  if (condition.Holds()) return;
  Self().condition = &condition;
  Park(State::kCondition);
}

void Perform(const Exchange& exchange, void* part) {
  Lane& lane = Self();
  lane.exchange = exchange;
  lane.part = part;
  Park(State::kExchange);
}

size_t SharedOffset(const void* pointer, size_t bytes, const char* what) {
  const Block& block = *machine->block;
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const auto shared = reinterpret_cast<uintptr_t>(block.shared.get());
  if (at < shared || at - shared > block.shared_bytes ||
      bytes > block.shared_bytes - (at - shared)) {
    Fail(std::string(what) + " is not in the block's shared memory");
  }
  return at - shared;
}

void Run(const Grid& grid, void (*kernel)(const void*), const void* args) {
  const gpu::LaunchShape& shape = grid.shape;
  if (shape.blocks < 0 || shape.threads <= 0 || shape.threads > 1024 ||
      shape.blocks > gpu::MaxBlocks(shape.threads) ||
      shape.threads % grid.wave_size != 0 || shape.cluster_blocks < 1 ||
      shape.cluster_blocks > 8 ||
      (shape.together && shape.cluster_blocks > 1) ||
      shape.blocks % shape.cluster_blocks != 0 ||
      shape.shared_bytes > kMaxSharedBytes) {
    std::fprintf(stderr,
                 "host SIMT: a GPU cannot launch %lld blocks of %d threads and "
                 "%lld bytes in clusters of %d at wave size %d\n",
                 static_cast<long long>(shape.blocks), shape.threads,
                 static_cast<long long>(shape.shared_bytes),
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
  const int64_t at_once = shape.together ? shape.blocks : shape.cluster_blocks;
  here.blocks.resize(static_cast<size_t>(at_once));
  machine = &here;
  for (int64_t block = 0; block < shape.blocks; block += at_once) {
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

void SyncGroup(int barrier, int threads) {
  if (barrier < 1 || barrier >= kNamedBarriers || threads < 1 ||
      threads % machine->grid.wave_size != 0) {
    Fail("no barrier of whole waves");
  }
  Lane& lane = Self();
  lane.barrier = barrier;
  lane.barrier_threads = threads;
  Park(State::kGroupSync);
}

uint64_t ShuffleXor(uint64_t value, int mask) {
  if (mask < 0 || mask >= machine->grid.wave_size) {
    Fail("an exchange past the wave");
  }
  struct Part {
    uint64_t value;
    int mask;
  } part{value, mask};
  const auto perform = [](void* const* parts, int lanes) {
    uint64_t values[kMaxWaveSize];
    const int with = static_cast<Part*>(parts[0])->mask;
    for (int i = 0; i < lanes; ++i) {
      values[i] = static_cast<Part*>(parts[i ^ with])->value;
    }
    for (int i = 0; i < lanes; ++i) {
      static_cast<Part*>(parts[i])->value = values[i];
    }
  };
  Perform({perform, mask}, &part);
  return part.value;
}

bool ElectOne() {
  Perform({[](void* const*, int) {}, 0}, nullptr);
  const auto wave = static_cast<size_t>(Wave());
  return ThreadIndex() % WaveSize() == machine->block->elected[wave];
}

void* SharedMemory() { return machine->block->shared.get(); }

void* MapShared(void* pointer, int rank) {
  Machine& m = *machine;
  if (rank < 0 || rank >= ClusterBlocks()) {
    Fail("a block that the cluster does not have");
  }
  const int64_t offset = static_cast<uint8_t*>(pointer) - m.block->shared.get();
  return m.blocks[static_cast<size_t>(rank)].shared.get() + offset;
}

}  // namespace lamina::simt
