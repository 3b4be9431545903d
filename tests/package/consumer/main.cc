#include <cstdio>
#include <vector>

#include "lamina/norm/rms_norm.h"

int main() {
  const std::vector<float> x = {3, 4, 0, 0,  //
                                1, 1, 1, 1};
  std::vector<float> y(x.size());
  const absl::Status status =
      lamina::RmsNorm({.x = lamina::Matrix(x.data(), 2, 4),
                       .epsilon = 0.0f,
                       .y = lamina::Matrix(y.data(), 2, 4)},
                      lamina::Stream::Cpu());
  if (!status.ok()) {
    std::puts(status.ToString().c_str());
    return 1;
  }
  for (const float value : y) std::printf("%.2f ", value);
  std::puts("");  // 1.20 1.60 0.00 0.00 1.00 1.00 1.00 1.00
}
