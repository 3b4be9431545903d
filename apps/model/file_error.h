#pragma once

// How the readers of this folder complain: one line with the file, the byte
// and what is wrong. Names that come from a file are escaped and cut, since
// they may hold anything.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lamina::model_internal {

// InvalidArgument "FILE: byte N: MESSAGE".
absl::Status BadFile(std::string_view file, uint64_t byte,
                     std::string_view message);
// InvalidArgument "FILE: MESSAGE", where no single byte is to blame.
absl::Status BadFile(std::string_view file, std::string_view message);
// Unimplemented "FILE: MESSAGE".
absl::Status NotSupported(std::string_view file, std::string_view message);

// "name" in quotes, control bytes and broken UTF-8 escaped, 80 bytes at most.
std::string Quoted(std::string_view name);
std::string ShapeText(const int64_t* dims, size_t count);  // "[3, 4]"

bool IsUtf8(std::string_view text);

}  // namespace lamina::model_internal
