// A plan as the document that plan --json prints (INTERFACE, Planning and profiling).
#pragma once

#include <nlohmann/json.hpp>

#include "rondo/train/session.h"

namespace rondo::train {

nlohmann::ordered_json plan_document(const PlannedRun& run);

/// What a plan says when it is made from a model's name alone: there is no tokenizer to read `config.dataset` with.
std::string dataset_not_read(const Config& config);

}  // namespace rondo::train
