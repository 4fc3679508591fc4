// Results on standard output: nothing may be lost silently on a full disk or a closed pipe.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/status.h"

namespace rondo::apps {

/// Errors: Internal when it cannot be written.
absl::Status put(std::FILE* out, std::string_view text);

/// One line. Numbers that are not finite become null; text that is not UTF-8 gets replacement characters.
absl::Status put_json(std::FILE* out, const nlohmann::ordered_json& document);

}  // namespace rondo::apps
