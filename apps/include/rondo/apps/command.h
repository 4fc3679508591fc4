// The `rondo` command as a function: arguments in, text out, exit status back.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rondo/train/run.h"

namespace rondo::apps {

/// Where results and everything else go. Not owned.
struct Streams {
  std::FILE* out = stdout;
  std::FILE* err = stderr;
};

/// Exit statuses that scripts rely on.
enum ExitStatus : int { kDone = 0, kWorkFailed = 1, kBadInput = 2, kInterrupted = 130 };

/// InvalidArgument means bad input, Cancelled interrupted, anything else that the work failed.
int exit_status(const absl::Status& status);

/// Runs `rondo <arguments>`. Errors are told on streams.err as one line; nothing is thrown but what the standard
/// library throws (std::bad_alloc), which `main` tells likewise.
int run_command(const std::vector<std::string>& arguments, const Streams& streams, train::StopRequest& stop);

/// "error: " and the message as one line.
void print_error(std::FILE* err, std::string_view message);

}  // namespace rondo::apps
