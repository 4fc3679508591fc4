// Errors between rooms: absl::Status with messages built by fmt, and the macros that hand them on.
//
// The code of a status decides the program's exit status: InvalidArgument means that the user's input (command line,
// configuration or a file) is wrong, exit 2; Cancelled means interrupted after saving, exit 130; anything else that the
// work failed, exit 1. A message is one line and names what is at fault, what was expected and found, and what to do.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rondo {

/// The user's input is wrong: the message names file, key, line or tensor.
template <typename... Args>
[[nodiscard]] absl::Status invalid_input(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

/// The work failed through no fault of the input.
template <typename... Args>
[[nodiscard]] absl::Status internal_error(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InternalError(fmt::format(format, std::forward<Args>(args)...));
}

/// Memory, disk or another bounded resource did not suffice; the message holds the numbers.
template <typename... Args>
[[nodiscard]] absl::Status resource_exhausted(fmt::format_string<Args...> format, Args&&... args) {
  return absl::ResourceExhaustedError(fmt::format(format, std::forward<Args>(args)...));
}

/// A backend or a file kind cannot do this (yet); the message says what can.
template <typename... Args>
[[nodiscard]] absl::Status unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnimplementedError(fmt::format(format, std::forward<Args>(args)...));
}

/// The message as a string of the standard library: absl::string_view need not be std::string_view.
[[nodiscard]] inline std::string message_of(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

/// `status` with `prefix: ` before its message, the code kept. OK stays OK.
[[nodiscard]] inline absl::Status with_context(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("{}: {}", prefix, message_of(status)));
}

}  // namespace rondo

#define RONDO_CONCAT_INNER(a, b) a##b
#define RONDO_CONCAT(a, b) RONDO_CONCAT_INNER(a, b)

/// Leaves the function with the status of `expr` unless it is OK.
#define RONDO_RETURN_IF_ERROR(expr)              \
  do {                                           \
    ::absl::Status rondo_status = (expr);        \
    if (!rondo_status.ok()) return rondo_status; \
  } while (false)

/// `lhs` = value of the StatusOr `expr`, or leaves the function with its status.
#define RONDO_ASSIGN_OR_RETURN(lhs, expr) RONDO_ASSIGN_OR_RETURN_INNER(RONDO_CONCAT(rondo_or_, __LINE__), lhs, expr)
#define RONDO_ASSIGN_OR_RETURN_INNER(holder, lhs, expr) \
  auto holder = (expr);                                 \
  if (!holder.ok()) return std::move(holder).status();  \
  lhs = *std::move(holder)
