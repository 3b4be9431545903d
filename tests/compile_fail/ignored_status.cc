// A call's status has to be looked at.
#include "lamina/norm/rms_norm.h"

void Norm(const lamina::RmsNormArgs& args) {
  // expected-error: ignoring return
  lamina::RmsNorm(args, lamina::Stream::Cpu());
}
