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

/// A model's templates, unparsed.
struct TemplateSources {
  std::optional<std::string> text;
  std::optional<std::string> for_tools;  // of conversations with tools, where the model has one of its own for them
};

/// The templates that it takes, for those who hand them on without running them. Errors: InvalidArgument naming the
/// place.
absl::StatusOr<TemplateSources> chat_template_sources(const Documents& documents);

}  // namespace rondo::data
