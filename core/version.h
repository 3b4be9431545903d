#pragma once

// The version of the headers that a program is compiled against. CMake reads
// it from here: these three lines are the only place to change.

namespace lamina {

inline constexpr int kVersionMajor = 0;
inline constexpr int kVersionMinor = 1;
inline constexpr int kVersionPatch = 0;

}  // namespace lamina
