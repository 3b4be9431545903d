#include "lamina/core/device/simt/async.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lamina/core/device/runtime.h"
#include "lamina/core/device/simt/machine.h"
#include "lamina/core/device/simt/tensor_map.h"

namespace lamina::simt {
namespace {

constexpr size_t kChunk = 16;  // bytes
constexpr uint64_t kPhaserState = 0x6c616d696e612e70;
constexpr int kMaxArrivals = (1 << 20) - 1;
constexpr int64_t kMaxPhaseBytes = (1 << 20) - 1;

struct PhaserModel {
  size_t offset = 0;
  int lane = 0;  // that initialised it
  bool published = false;
  int arrivals = 0;  // of a phase
  // Of the phase that is under way.
  int arrivals_to_come = 0;
  int64_t bytes_to_come = 0;
  uint64_t phase = 0;
};

// 16 bytes of shared memory.
struct Chunk {
  bool under_way = false;
  bool own = false;  // the last copy to it was a lane's own
  int lane = 0;
  uint64_t landed = 0;
  // What the tensor cores have last seen here.
  uint64_t seen = 0;
  uint8_t bytes[kChunk];
  Chunk() { std::memset(bytes, kPoison, kChunk); }
};

struct OwnCopy {
  uint64_t number;
  uint64_t group;
  size_t offset;
  uint8_t bytes[kChunk];
};

struct LaneCopies {
  std::vector<OwnCopy> under_way;
  uint64_t started = 0;
  uint64_t groups = 0;     // that are closed
  uint64_t published = 0;  // when this lane has last published
};

struct AsyncBlock : BlockPart {
  std::map<size_t, PhaserModel> phasers;  // by offset
  std::vector<Chunk> chunks;
  std::vector<LaneCopies> lanes;
  uint64_t now = 0;
  uint64_t published = 0;  // when any lane has
};

AsyncBlock& AsyncOf(Block& block) {
  if (block.async == nullptr) {
    auto async = std::make_unique<AsyncBlock>();
    async->chunks.resize((block.shared_bytes + kChunk - 1) / kChunk);
    async->lanes.resize(block.lanes.size());
    block.async = std::move(async);
  }
  return static_cast<AsyncBlock&>(*block.async);
}
AsyncBlock& Async() { return AsyncOf(*machine->block); }
LaneCopies& OwnCopies() {
  return Async().lanes[static_cast<size_t>(machine->lane)];
}

size_t AlignedOffset(const void* shared, size_t bytes, size_t alignment) {
  const size_t offset = SharedOffset(shared, bytes, "what a copy writes to");
  if (offset % alignment != 0) Fail("a copy to a misaligned place");
  return offset;
}
void CheckSource(const void* global) {
  if (reinterpret_cast<uintptr_t>(global) % kChunk != 0) {
    Fail("a copy from a misaligned place");
  }
}

// ---- Chunks -----------------------------------------------------------------

void Start(size_t offset) {
  Chunk& chunk = Async().chunks[offset / kChunk];
  if (chunk.under_way) {
    Fail("two copies are under way to byte " + std::to_string(offset) +
         " of shared memory");
  }
  chunk.under_way = true;
  std::memset(machine->block->shared.get() + offset, kPoison, kChunk);
}

void Land(Block& block, size_t offset, const uint8_t* bytes, bool own,
          int lane) {
  AsyncBlock& async = AsyncOf(block);
  Chunk& chunk = async.chunks[offset / kChunk];
  chunk.under_way = false;
  chunk.own = own;
  chunk.lane = lane;
  chunk.landed = ++async.now;
  std::memcpy(block.shared.get() + offset, bytes, kChunk);
  if (own) return;
  chunk.seen = async.now;
  std::memcpy(chunk.bytes, bytes, kChunk);
}

// ---- Own copies -------------------------------------------------------------

// Those of a lane that `due` names, in random order.
template <class Due>
void LandOwn(Block& block, int lane, Due due) {
  auto& copies = AsyncOf(block).lanes[static_cast<size_t>(lane)].under_way;
  std::shuffle(copies.begin(), copies.end(), machine->random);
  std::erase_if(copies, [&](const OwnCopy& copy) {
    if (!due(copy)) return false;
    Land(block, copy.offset, copy.bytes, true, lane);
    return true;
  });
}

// ---- Phasers ----------------------------------------------------------------

size_t PhaserOffset(const uint64_t* phaser) {
  return SharedOffset(phaser, sizeof(uint64_t), "a phaser");
}

PhaserModel& Find(const uint64_t* phaser) {
  const auto found = Async().phasers.find(PhaserOffset(phaser));
  if (found == Async().phasers.end()) {
    Fail("a phaser that has not been initialised");
  }
  PhaserModel& model = found->second;
  if (*phaser != kPhaserState) {
    Fail("a phaser that something has written over");
  }
  if (model.lane != machine->lane && !model.published) {
    Fail("a phaser that has not been published");
  }
  return model;
}

std::string Describe(const PhaserModel& model) {
  return "phaser at byte " + std::to_string(model.offset) + ", phase " +
         std::to_string(model.phase) + " lacks " +
         std::to_string(model.arrivals_to_come) + " of " +
         std::to_string(model.arrivals) + " arrivals and " +
         std::to_string(model.bytes_to_come) + " bytes";
}

void EndPhaseIfComplete(PhaserModel& model) {
  if (model.arrivals_to_come != 0 || model.bytes_to_come != 0) return;
  model.arrivals_to_come = model.arrivals;
  ++model.phase;
}

void ArriveAt(PhaserModel& model, int64_t expected, const Block& block,
              int wave) {
  if (model.arrivals_to_come == 0) {
    Fail("more arrivals than a phase has: " + Describe(model), block, wave);
  }
  model.bytes_to_come += expected;
  if (model.bytes_to_come > kMaxPhaseBytes) {
    Fail("more bytes than a phase can count: " + Describe(model), block, wave);
  }
  --model.arrivals_to_come;
  EndPhaseIfComplete(model);
}

class PhaseEnd final : public Condition {
 public:
  PhaseEnd(const PhaserModel& model, uint32_t parity)
      : model_(model), parity_(parity) {}
  bool Holds() const override { return model_.phase % 2 != parity_; }
  std::string Describe() const override { return simt::Describe(model_); }

 private:
  const PhaserModel& model_;
  uint32_t parity_;
};

class Signals final : public Condition {
 public:
  Signals(const uint32_t* counter, uint32_t wanted, int stage)
      : counter_(counter), wanted_(wanted), stage_(stage) {}
  bool Holds() const override {
    return static_cast<int32_t>(*counter_ - wanted_) >= 0;
  }
  std::string Describe() const override {
    return "stage " + std::to_string(stage_) +
           " is not signalled: " + std::to_string(wanted_ - *counter_) +
           " signals are missing";
  }

 private:
  const uint32_t* counter_;
  uint32_t wanted_;
  int stage_;
};

// ---- Bulk copies ------------------------------------------------------------

struct Piece {
  size_t offset;
  uint8_t bytes[kChunk];
};

void StartBulk(std::vector<Piece> pieces, const uint64_t* phaser) {
  PhaserModel& model = Find(phaser);
  // NOTE: the copy is another proxy, even for the lane that has initialised it.
  if (!model.published) Fail("a phaser that has not been published");
  for (const Piece& piece : pieces) Start(piece.offset);
  Block* const block = machine->block;
  machine->events.push_back(
      {block, true, [block, &model, pieces = std::move(pieces)] {
         for (const Piece& piece : pieces) {
           Land(*block, piece.offset, piece.bytes, false, 0);
         }
         model.bytes_to_come -= static_cast<int64_t>(pieces.size() * kChunk);
         EndPhaseIfComplete(model);
       }});
}

}  // namespace

void CopyAsync16(void* shared, const void* global, int bytes) {
  const size_t offset = AlignedOffset(shared, kChunk, kChunk);
  CheckSource(global);
  if (bytes < 0 || bytes > static_cast<int>(kChunk)) {
    Fail("a copy of more bytes than 16, or fewer than none");
  }
  LaneCopies& own = OwnCopies();
  OwnCopy copy{own.started++, own.groups, offset, {}};
  if (bytes > 0) std::memcpy(copy.bytes, global, static_cast<size_t>(bytes));
  Start(offset);
  own.under_way.push_back(copy);
}

void WaitAsyncCopies() {
  LandOwn(*machine->block, machine->lane, [](const OwnCopy&) { return true; });
}

void CommitAsyncCopies() { ++OwnCopies().groups; }

void WaitAsyncCopies(int pending_groups) {
  const uint64_t groups = OwnCopies().groups;
  LandOwn(*machine->block, machine->lane, [=](const OwnCopy& copy) {
    return copy.group + static_cast<uint64_t>(pending_groups) < groups;
  });
}

void InitPhaser(uint64_t* phaser, int arrivals) {
  const size_t offset = PhaserOffset(phaser);
  if (offset % sizeof(uint64_t) != 0) Fail("a misaligned phaser");
  if (arrivals < 1 || arrivals > kMaxArrivals) {
    Fail("a phaser of " + std::to_string(arrivals) + " arrivals");
  }
  const auto [place, is_new] = Async().phasers.try_emplace(offset);
  if (!is_new) Fail("a phaser that is initialised twice");
  place->second.offset = offset;
  place->second.lane = machine->lane;
  place->second.arrivals = arrivals;
  place->second.arrivals_to_come = arrivals;
  *phaser = kPhaserState;
}

void PublishPhasers() {
  for (auto& [offset, model] : Async().phasers) {
    if (model.lane == machine->lane) model.published = true;
  }
}

void Arrive(uint64_t* phaser, int expected_bytes) {
  ArriveAt(Find(phaser), expected_bytes, *machine->block, Wave());
}

void ArriveWhenCopied(uint64_t* phaser) {
  PhaserModel& model = Find(phaser);
  const uint64_t started = OwnCopies().started;
  Block* const block = machine->block;
  machine->events.push_back(
      {block, false, [block, &model, lane = machine->lane, started] {
         LandOwn(*block, lane, [started](const OwnCopy& copy) {
           return copy.number < started;
         });
         ArriveAt(model, 0, *block, lane / machine->grid.wave_size);
       }});
}

void Await(uint64_t* phaser, uint32_t parity) {
  if (parity > 1) Fail("a parity that is neither 0 nor 1");
  WaitFor(PhaseEnd(Find(phaser), parity));
}

void SendAsync(int64_t value, void* shared, int rank, uint64_t* phaser) {
  const size_t offset =
      SharedOffset(shared, sizeof(value), "what a value is sent to");
  if (offset % sizeof(value) != 0) Fail("a value for a misaligned place");
  if (rank < 0 || rank >= ClusterBlocks()) {
    Fail("a block that the cluster does not have");
  }
  Block* const to = &machine->blocks[static_cast<size_t>(rank)];
  auto& phasers = AsyncOf(*to).phasers;
  const auto found = phasers.find(PhaserOffset(phaser));
  if (found == phasers.end() || !found->second.published) {
    Fail("a phaser of another block that has not been published");
  }
  machine->events.push_back({to, true, [=, &model = found->second] {
                               std::memcpy(to->shared.get() + offset, &value,
                                           sizeof(value));
                               model.bytes_to_come -= int64_t{sizeof(value)};
                               EndPhaseIfComplete(model);
                             }});
}

void PrefetchBytes(const void* global, int bytes) {
  if (bytes < 0 || bytes % static_cast<int>(kChunk) != 0) {
    Fail("a prefetch of " + std::to_string(bytes) + " bytes");
  }
  CheckSource(global);
  const auto* const from = static_cast<const volatile uint8_t*>(global);
  for (int i = 0; i < bytes; ++i) static_cast<void>(from[i]);
}

uint32_t Signal(uint32_t* counter) { return (*counter)++; }

void AwaitSignals(const uint32_t* counter, uint32_t wanted, int stage) {
  WaitFor(Signals(counter, wanted, stage));
}

void CopyBulk(void* shared, const void* global, int bytes, uint64_t* phaser) {
  if (bytes < 0 || bytes % static_cast<int>(kChunk) != 0) {
    Fail("a bulk copy of " + std::to_string(bytes) + " bytes");
  }
  const auto size = static_cast<size_t>(bytes);
  const size_t offset = AlignedOffset(shared, size, kChunk);
  CheckSource(global);
  std::vector<Piece> pieces(size / kChunk);
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].offset = offset + i * kChunk;
    std::memcpy(pieces[i].bytes,
                static_cast<const uint8_t*>(global) + i * kChunk, kChunk);
  }
  StartBulk(std::move(pieces), phaser);
}

void CopyTensor2D(void* shared, const gpu::TensorMap* map, int col, int row,
                  uint64_t* phaser) {
  TensorMapModel model;
  std::memcpy(static_cast<void*>(&model), map, sizeof(model));
  if (model.state != kTensorMapState) Fail("a tensor map that nobody made");
  const gpu_runtime::TensorMapArgs& args = model.args;
  const int64_t box_cols = args.box_cols, element_bytes = args.element_bytes;
  const auto row_bytes = static_cast<size_t>(box_cols * element_bytes);
  const auto rows = static_cast<size_t>(args.box_rows);
  if (col * element_bytes % static_cast<int64_t>(kChunk) != 0) {
    Fail("a box that begins at a misaligned column");
  }
  const size_t offset =
      AlignedOffset(shared, rows * row_bytes, kSharedAlignment);
  std::vector<Piece> pieces;
  for (size_t r = 0; r < rows; ++r) {
    std::vector<uint8_t> line(row_bytes);
    const int64_t from = std::clamp<int64_t>(-int64_t{col}, 0, box_cols);
    const int64_t to = std::clamp<int64_t>(args.cols - col, from, box_cols);
    const int64_t y = row + static_cast<int64_t>(r);
    if (y >= 0 && y < args.rows && to > from) {
      std::memcpy(&line[static_cast<size_t>(from * element_bytes)],
                  static_cast<const uint8_t*>(args.base) +
                      y * args.pitch_bytes + (col + from) * element_bytes,
                  static_cast<size_t>((to - from) * element_bytes));
    }
    for (size_t c = 0; c < row_bytes; c += kChunk) {
      Piece& piece = pieces.emplace_back();
      piece.offset =
          Swizzled128(static_cast<uint32_t>(offset + r * row_bytes + c));
      std::memcpy(piece.bytes, &line[c], kChunk);
    }
  }
  StartBulk(std::move(pieces), phaser);
}

void PublishToAsync() {
  AsyncBlock& async = Async();
  async.published = ++async.now;
  OwnCopies().published = async.now;
}

void ReadForProducts(uint32_t offset, uint8_t* bytes) {
  AsyncBlock& async = Async();
  Chunk& chunk = async.chunks[offset / kChunk];
  std::memcpy(bytes, machine->block->shared.get() + offset, kChunk);
  if (std::memcmp(bytes, chunk.bytes, kChunk) == 0) return;
  bool visible;
  const bool copied = chunk.own && chunk.landed > chunk.seen;
  if (copied) {
    const int wave_size = machine->grid.wave_size;
    const auto wave = async.lanes.begin() + Wave() * wave_size;
    visible =
        async.lanes[static_cast<size_t>(chunk.lane)].published > chunk.landed ||
        std::all_of(wave, wave + wave_size, [&](const LaneCopies& lane) {
          return lane.published > chunk.landed;
        });
  } else {
    visible = async.published > chunk.seen;
  }
  if (!visible) {
    std::memset(bytes, kPoison, kChunk);
  } else if (!copied) {
    chunk.seen = async.now;
    std::memcpy(chunk.bytes, bytes, kChunk);
  }
}

}  // namespace lamina::simt
