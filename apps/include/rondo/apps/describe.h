// What is known before a run, a plan and the list of devices, as text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rondo/train/run.h"

namespace rondo::apps {

/// Model, method, data and what was inferred, one masked sample, memory by device, host, predicted step time.
std::string describe_summary(const train::RunSummary& summary, bool colour);

/// `text` behind `label`, its further lines below each other; control characters are escaped.
std::string labelled(std::string_view label, std::string_view text);

std::string describe_plan(const partition::Plan& plan);

/// Side by side; empty when there is nothing to compare.
std::string describe_schedules(const std::vector<partition::ComparedSchedule>& schedules);

/// Predicted beside measured. `document`: that of profile --json.
std::string describe_profile(const nlohmann::ordered_json& document);

/// `document`: that of runs --json.
std::string describe_runs(const nlohmann::ordered_json& document);

/// A row a point, then where each pool's throughput bends. `document`: that of plan --sweep or profile --sweep.
std::string describe_sweep(const nlohmann::ordered_json& document);

/// `document`: that of devices --json.
std::string describe_devices(const nlohmann::ordered_json& document);

}  // namespace rondo::apps
