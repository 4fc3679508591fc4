// Results on standard output.
#include "rondo/apps/output.h"

#include "rondo/base/status.h"

namespace rondo::apps {

absl::Status put(std::FILE* out, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0) {
    return internal_error("standard output: cannot be written");
  }
  return absl::OkStatus();
}

absl::Status put_json(std::FILE* out, const nlohmann::ordered_json& document) {
  return put(out, document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace rondo::apps
