#pragma once

// Host SIMT: runs the kernels' own source on the CPU, for tests. A lane is a
// fiber that runs until it meets the others: at an exchange between lanes, a
// barrier of its block or of its cluster. Waves are resumed in random order,
// so that a missing barrier shows; shared memory is poisoned before each block.
//
// A kernel that could hang or differ on a GPU ends the program with one line:
// lanes of a wave at different exchanges, an exchange, a barrier or the end of
// a phase that some lanes never reach.
//
// Copies and products that run beside the lanes (async.h, matrix.h) are late:
// they happen when a lane waits for them and no other can run.
//
// What it proves: indices, reductions, barriers, rounding. What it does not:
// the GPU compiler's output, timing, memory ordering.

#include <cstdint>

#include "lamina/core/launch.h"

namespace lamina::simt {

struct Grid {
  gpu::LaunchShape shape;
  int wave_size = 32;
};

// Runs kernel(args) for every thread of the grid and returns when all are done.
// Thread-safe. The order of waves follows LAMINA_SIMT_SEED (environment).
void Run(const Grid& grid, void (*kernel)(const void* args), const void* args);

// ---- What a running lane asks for. ------------------------------------------

int ThreadIndex();
int BlockThreads();
int64_t BlockIndex();
int64_t BlockCount();
int WaveSize();
int ClusterRank();
int ClusterBlocks();

void BlockSync();
void ClusterSync();
// Barriers 1 to 15, of whole waves.
void SyncGroup(int barrier, int threads);
// True in one lane of the wave, not always the first.
bool ElectOne();
// The value that lane (own lane ^ mask) gives.
uint64_t ShuffleXor(uint64_t value, int mask);

void* SharedMemory();
// The place in the shared memory of another block of the cluster.
void* MapShared(void* pointer, int rank);

}  // namespace lamina::simt
