#pragma once

// The vocabulary that kernels are written in, in namespace lamina::gpu. Each
// vendor's folder has a header of the same name with the same functions;
// core/device/simt runs the kernels on the host, for tests.
//
// Threads   ThreadIndex, BlockThreads, BlockIndex; Lane<kWave>, Wave<kWave>;
//           CUDA: UniformWave(): ThreadIndex() / 32, known to be the wave's;
//           GiveRegisters<n>, TakeRegisters<n>: warpgroups end up with n a
//           thread
// Barriers  WaveSync: the wave's lanes are together again, as barriers of a
//           cluster need them, and see each other's shared memory; BlockSync;
//           ClusterArrive and ClusterWait, the two halves of a barrier of the
//           cluster; ClusterArriveRelaxed: orders no memory; ClusterIndex,
//           ClusterRank, ClusterBlocks
// Lanes     ExchangeHalves<kWave>(value, mask): the value of the other half of
//           the group of 2 * mask adjacent lanes (mask: a power of two). All
//           lanes of a half hold the same value. WaveMax<kWave>(value). All
//           lanes of the wave take part in both.
// Shared    SharedMemory<T>(): the block's dynamic shared memory, aligned to 16
//           bytes, where there are tensor copies (core/device/async.cuh) to
//           1024; StoreShared(pointer, rank, value): a float or int64_t, to the
//           same place in another block of the cluster
// Overlap   AllowDependents, WaitForPredecessor (programmatic dependent launch)
// Order     Settle(value): a float, int or uint64_t is computed here and not
// later Memory    Load128, Load128Constant (never written while the kernel
// runs),
//           Load128Streaming (read once), Load64, Store128, Store64 (the same
//           names with Streaming: written, not read again soon), Store32,
//           Store8
// Math      SquareRoot, Divide: exactly rounded; MultiplyWhereNegative;
//           ApproximateReciprocal, ApproximateReciprocalSquareRoot,
//           ApproximateExp2
// Convert   PackBf16, PackF16, UnpackF16; CUDA: WidenToF16<T>(codes) and
//           WidenToBf16<T>: two of F8E4M3Fn or F8E5M2; WidenE4M3: two
//           F8E4M3Fn to two BF16; WidenFourE4M3: four to two pairs of F16;
//           SwapMiddleBytes; NativeF8, the FP8 type that the
//           architecture converts (void: none), PackNativeF8 and
//           UnpackNativeF8
// Compiled  kWaveSizes, kClusterChoices: what kernels are compiled for;
//           kWaveRunsHere<kWave>: whether this pass of the compiler needs them;
//           kWideLanes: lanes of a block whose lanes have 128 registers each

#if defined(LAMINA_SIMT)
#include "lamina/core/device/simt/intrinsics.cuh"
#elif defined(__HIP__)
#include "lamina/core/device/hip/intrinsics.cuh"
#else
#include "lamina/core/device/cuda/intrinsics.cuh"
#endif
