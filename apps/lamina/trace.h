#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "lamina/core/event.h"

namespace lamina::cli {

// Collects named spans between events and writes them in the Chrome trace
// format, which chrome://tracing and ui.perfetto.dev read.
class Trace {
 public:
  // Spans are placed relative to `origin`, which must be recorded.
  explicit Trace(Event origin) : origin_(std::move(origin)) {}
  absl::Status Add(const std::string& name, const std::string& category,
                   const Event& begin, const Event& end);
  absl::Status Write(const std::string& path) const;

 private:
  Event origin_;
  std::string spans_;
};

}  // namespace lamina::cli
