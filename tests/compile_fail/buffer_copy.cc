// A Buffer owns its memory: it moves, it is not copied.
#include "lamina/core/buffer.h"

lamina::Buffer Twice(const lamina::Buffer& buffer) {
  return buffer;  // expected-error: use of deleted function
}
