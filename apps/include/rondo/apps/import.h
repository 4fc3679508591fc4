// `rondo import`: another program's configuration in, ours out; what became of each key on standard error.
#pragma once

#include "absl/status/status.h"
#include "rondo/apps/command.h"
#include "rondo/train/config.h"

namespace rondo::apps {

/// Errors: those of train::import_config; InvalidArgument when the file to write exists.
absl::Status run_import(const train::Config& config, const Streams& streams);

}  // namespace rondo::apps
