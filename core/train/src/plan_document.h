// A plan as the document that plan --json prints (INTERFACE, Planning and profiling).
#pragma once

#include <nlohmann/json.hpp>

#include "rondo/train/session.h"

namespace rondo::train {

nlohmann::ordered_json plan_document(const PlannedRun& run);

}  // namespace rondo::train
