// The text of a model's chat template, for those who hand it on without running it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace rondo::data {

/// The template that ChatTemplate::load() takes, unparsed. Nothing when the model has none. Errors: InvalidArgument
/// naming the file.
absl::StatusOr<std::optional<std::string>> chat_template_source(const std::filesystem::path& folder);

}  // namespace rondo::data
