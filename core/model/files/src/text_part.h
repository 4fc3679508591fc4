// The text part of a model that reads pictures too, which alone is trained.
#pragma once

#include <optional>

#include "json_reader.h"

namespace rondo::model {

/// What stands around it about tokens and numbers wins. Nothing of other models.
std::optional<Json> text_part_of(const Json& document);

}  // namespace rondo::model
