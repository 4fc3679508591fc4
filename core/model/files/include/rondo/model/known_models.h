// The published sizes of well-known models, so that a run can be planned by a model's name alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/model/config.h"

namespace rondo::model {

/// "Qwen/Qwen3-32B" or "Qwen3-32B", in any case; the instruction-tuned versions of a model ("-Instruct", "-Chat",
/// "-Base") have its sizes. Nothing when the model is not in the table.
std::optional<ModelConfig> known_model(std::string_view name);

/// The names in the table, in its order.
std::vector<std::string> known_models();

}  // namespace rondo::model
