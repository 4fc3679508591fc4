// What is known before a run, a plan and the list of devices, as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/train/run.h"

namespace rondo::apps {

/// Model, method, data and what was inferred, one masked sample, memory by device, host, predicted step time.
std::string describe_summary(const train::RunSummary& summary, bool colour);

/// One line: container, format, records, what was cut or left out, tokens.
std::string describe_data(const data::DataReport& report);

std::string describe_plan(const partition::Plan& plan);

/// `document`: that of devices --json.
std::string describe_devices(const nlohmann::ordered_json& document);

}  // namespace rondo::apps
