// Memory that is only read cannot be an output.
#include "lamina/norm/rms_norm.h"

void Fill(lamina::RmsNormArgs& args, const float* data) {
  // expected-error: no match for 'operator='
  args.y = lamina::Matrix(data, 1, 8);
}
