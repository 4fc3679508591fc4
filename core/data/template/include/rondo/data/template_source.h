// A model's chat template out of documents: a folder's files, or what another format was turned into.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rondo/base/documents.h"
#include "rondo/data/chat_template.h"

namespace rondo::data {

/// ChatTemplate::load() of any documents.
absl::StatusOr<std::optional<ChatTemplate>> load_chat_template(const Documents& documents, TemplateLimits limits = {});

/// The template that it takes, unparsed, for those who hand it on without running it. Nothing when the model has none.
/// Errors: InvalidArgument naming the place.
absl::StatusOr<std::optional<std::string>> chat_template_source(const Documents& documents);

}  // namespace rondo::data
