// `rondo chat`: a conversation at a terminal, or turns through a pipe.
//
// At a terminal the line is edited, answers appear as they come, and what goes wrong is told and gone on from. Through
// a pipe every line is a turn or a command, answers are lines on standard output, and the first error ends the program.
#pragma once

#include "absl/status/status.h"
#include "rondo/apps/command.h"
#include "rondo/train/config.h"

namespace rondo::apps {

/// Errors: those of train::Chat; InvalidArgument naming the line of an unknown command that came through a pipe;
/// Cancelled when Ctrl-C comes while a pipe is waited for.
absl::Status run_chat(const train::Config& config, const Streams& streams);

}  // namespace rondo::apps
