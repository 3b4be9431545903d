// A program that links lamina::norm alone sees no header of its siblings.
#include "lamina/activation/gated_activation.h"  // expected-error: No such file
