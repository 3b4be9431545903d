#pragma once

// A ring of stages in shared memory: threads that fill stages run ahead of
// those that use them, by as many stages as there are. One phaser says that a
// stage is full, another that it is empty again.
//
//   filling                                using
//     Ring::Place at;                        Ring::Place at;
//     ring.AwaitEmpty(at);                   ring.AwaitFull(at);
//     … start copies that arrive at          … read stage at.stage …
//       ring.full(at) …                      ring.Release(at);  // one lane
//     ring.Advance(at);                      ring.Advance(at);
//
// Stages may be dealt out to several users, each of which takes every n-th.
// NOTE: then the ring's stages are a multiple of n: a stage must have the same
// users for good. A user that skips a round of a stage would take its next one
// for that, as a phaser tells the rounds apart by their parity alone.

#include <cstdint>

#include "lamina/core/device/async.cuh"

namespace lamina::gpu {

class Ring {
 public:
  // A stage, and whether the round over the ring is odd.
  struct Place {
    int stage = 0;
    uint32_t parity = 0;
  };

  // phasers: two a stage, in shared memory.
  __device__ Ring(Phaser* phasers, int stages)
      : phasers_(phasers), stages_(stages) {}

  // By one thread; PublishPhasers and a barrier of the block follow. A stage is
  // full after `fills` arrivals and empty after `releases`.
  __device__ void Init(int fills, int releases) const {
    for (int stage = 0; stage < stages_; ++stage) {
      InitPhaser(&phasers_[stage], fills);
      InitPhaser(&phasers_[stages_ + stage], releases);
    }
  }

  __device__ Phaser* full(const Place& at) const { return &phasers_[at.stage]; }
  __device__ void AwaitFull(const Place& at) const {
    Await(full(at), at.parity);
  }
  // At once in the first round.
  __device__ void AwaitEmpty(const Place& at) const {
    Await(empty(at), at.parity ^ 1);
  }
  // Counts as `count` releases.
  __device__ void Release(const Place& at, int count = 1) const {
    Arrive(empty(at), count);
  }

  // `by` is at most the number of stages.
  __device__ void Advance(Place& at, int by = 1) const {
    at.stage += by;
    if (at.stage >= stages_) {
      at.stage -= stages_;
      at.parity ^= 1;
    }
  }

  // The same, for any number.
  __device__ void Skip(Place& at, int by) const {
    const int past = at.stage + by;
    const int rounds = past / stages_;
    at.stage = past - rounds * stages_;
    at.parity ^= static_cast<uint32_t>(rounds) & 1;
  }

 private:
  __device__ Phaser* empty(const Place& at) const {
    return &phasers_[stages_ + at.stage];
  }

  Phaser* phasers_;
  int stages_;
};

}  // namespace lamina::gpu
