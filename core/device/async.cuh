#pragma once

// Copies to shared memory that run beside the threads, and what waits for them.
// Part of the vocabulary of core/device/intrinsics.cuh; HIP has none of it.
//
// Own copies   CopyAsync16(shared, global, bytes): 16 bytes, of which the first
//              `bytes` are read and the others become 0; CopyAsync16Once: of
//              data that is read once. WaitAsyncCopies(): for all of this
//              thread's; CommitAsyncCopies() closes a group of them and
//              WaitAsyncCopies<kPending>() waits until at most so many groups
//              are under way
// Ahead        before WaitForPredecessor: PrefetchBytes(global, bytes) brings
//              bytes nearer (multiples of 16, as the address); LoadAhead(p): an
//              int32_t that may be written, now or then: what comes of it must
//              not be a result
// Phasers      a barrier in shared memory with a current phase, 0 at first. The
//              phase ends when its arrivals and the bytes that it expects have
//              come, and the next one, of the other parity, begins. InitPhaser
//              by one thread, PublishPhasers by the same one, then a barrier of
//              the block.
//              Arrive(phaser, count = 1); ArriveExpecting(phaser, bytes): and
//              so many bytes of this phase are to come; ArriveWhenCopied: the
//              arrival happens when all own copies before it have landed.
//              Await(phaser, parity): until the latest phase of that parity has
//              ended. A phaser whose first phase is under way counts as one
//              whose phase of parity 1 has ended.
// Bulk copies  by one thread: CopyBulk (addresses and bytes multiples of 16),
//              CopyTensor2D(shared, map, col, row, phaser): one box of the
//              matrix, zero where it is outside; it may begin outside too, but
//              always a multiple of 16 bytes from the first column. Both bring
//              their bytes to the phaser. Boxes lie in shared memory as
//              SwizzledTile says (core/device/matrix.cuh) and begin at
//              multiples of 1024. PrefetchTensorMap, ahead of the first
//              CopyTensor2D
// Values       SendAsync(value, shared, rank, phaser): an int64_t, to the same
//              place in another block of the cluster, whose phaser gets its 8
//              bytes. A barrier of the cluster lies between that block's
//              PublishPhasers and this
// Order        PublishToAsync(): what this thread has written to shared memory,
//              or waited for, can be read by the tensor cores and by bulk
//              copies that start behind a later barrier or arrival
//              PublishToAsyncEverywhere(): also what it has written to global
//              memory, or been signalled
// Blocks       that run at the same time (LaunchShape::together) tell each
// other
//              what they have done: Signal(counter): one more, after all that
//              this thread has written and what it has seen, behind barriers,
//              of others. SignalAndCount: the same; returns how many there
//              were, and what these came after can be read.
//              AwaitSignals(counter, wanted, stage): until there are `wanted`
//              or, as counters may wrap, up to 2^31 more; then all that the
//              signals came after can be read. `stage` is for the report that
//              they never come.
// Threads      ElectOne(): true in one lane of the wave, all lanes take part;
//              SyncGroup(barrier, threads): a barrier of whole waves, barriers
//              1 to 15
// Compiled     kHasAsync: the functions are there; kHasPhasers: and run on this
//              pass's architecture. Where they do not run they stop the kernel.

#if defined(LAMINA_SIMT)
#include "lamina/core/device/simt/async.cuh"
#elif defined(__HIP__)
namespace lamina::gpu {
inline constexpr bool kHasAsync = false;
inline constexpr bool kHasPhasers = false;
}  // namespace lamina::gpu
#else
#include "lamina/core/device/cuda/async.cuh"
#endif
