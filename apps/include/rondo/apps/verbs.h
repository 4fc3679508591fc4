// One function a verb: calls the work and prints its result.
#pragma once

#include "absl/status/status.h"
#include "rondo/apps/command.h"
#include "rondo/train/config.h"

namespace rondo::apps {

/// Runs `verb` (one of train::verbs()) with a checked configuration. A status that is not OK has not been told to the
/// user yet.
absl::Status run_verb(const std::string& verb, const train::Config& config, const Streams& streams,
                      train::StopRequest& stop);

}  // namespace rondo::apps
