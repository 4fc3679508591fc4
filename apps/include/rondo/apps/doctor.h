// `rondo doctor`: a line a finding.
#pragma once

#include "absl/status/status.h"
#include "rondo/apps/command.h"
#include "rondo/train/config.h"

namespace rondo::apps {

/// Errors: Internal naming the first problem, after all findings are told: training is not possible.
absl::Status run_doctor(const train::Config& config, const Streams& streams);

}  // namespace rondo::apps
