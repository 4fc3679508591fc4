// Every backend that can be opened on any machine, for the suites that run unchanged on all of them.
//
// A new backend adds itself to backends() and its exclusions to exclusions(); nothing else changes.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/devices/thread_pool.h"

namespace rondo::devices::contract {

/// Memory of every device that the suites open: small, so that limits are reached without harm.
inline constexpr Bytes kMemory = 64_MiB;

struct Backend {
  std::string name;  // a C++ word: "cpu_one_queue"
  std::function<absl::StatusOr<std::unique_ptr<Device>>(ThreadPool&)> open;
};
const std::vector<Backend>& backends();
inline std::ostream& operator<<(std::ostream& out, const Backend& backend) { return out << backend.name; }

/// A case that a backend does not pass. kNotYet is a debt; kNever is the nature of the backend.
struct Exclusion {
  enum class Kind { kNever, kNotYet } kind = Kind::kNever;
  std::string backend;  // a prefix: "timed" stands for "timed_one_queue" too
  std::string test;
  std::string reason;
};
const std::vector<Exclusion>& exclusions();
/// Null when `backend` must pass `test`.
const Exclusion* find_exclusion(const std::string& backend, const std::string& test);

}  // namespace rondo::devices::contract
