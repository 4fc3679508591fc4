// Starting threads where a process may have only so many: that there is none is a status, not an exception.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"

namespace rondo {

/// A thread that runs `body`. `purpose` completes "no thread for". Errors: ResourceExhausted naming it and the limits
/// that may be at fault.
absl::StatusOr<std::thread> start_thread(std::string_view purpose, std::function<void()> body);

}  // namespace rondo
