#include "apps/lamina/trace.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/lamina/support.h"
#include "lamina/core/status.h"

namespace lamina::cli {

absl::Status Trace::Add(const std::string& name, const std::string& category,
                        const Event& begin, const Event& end) {
  LAMINA_ASSIGN_OR_RETURN(const double start,
                          Event::ElapsedMicros(origin_, begin));
  LAMINA_ASSIGN_OR_RETURN(const double duration,
                          Event::ElapsedMicros(begin, end));
  absl::StrAppend(
      &spans_, spans_.empty() ? "" : ",\n",
      absl::StrFormat(
          R"({"name":"%s","cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":1,"tid":1})",
          name, category, start, duration));
  return absl::OkStatus();
}

absl::Status Trace::Write(const std::string& path) const {
  return WriteTextFile(path, absl::StrCat("{\"traceEvents\":[\n", spans_,
                                          "\n],\"displayTimeUnit\":\"ns\"}\n"));
}

}  // namespace lamina::cli
