// CUB's segmented reduction: bench/peers/row_peers.h.

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_segmented_reduce.cuh>

#include "bench/peers/row_peers.h"

namespace lamina::bench {
namespace {

struct RowBegin {
  int64_t cols;
  __host__ __device__ int64_t operator()(int64_t row) const {
    return row * cols;
  }
};

}  // namespace

gpu::Error LaunchSegmentedSum(const SegmentedSumArgs& args,
                              size_t* scratch_bytes,
                              const gpu::LaunchTarget& target) {
  const auto begins = thrust::make_transform_iterator(
      thrust::counting_iterator<int64_t>(0), RowBegin{args.cols});
  return {static_cast<int>(cub::DeviceSegmentedReduce::Sum(
      args.scratch, *scratch_bytes, args.x, args.y, args.rows, begins,
      begins + 1, static_cast<cudaStream_t>(target.stream)))};
}

}  // namespace lamina::bench
