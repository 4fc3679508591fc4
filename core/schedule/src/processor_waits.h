// How long threads of this process were ready to run while others had the processors.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace rondo::schedule {

/// Of a machine that has more to do than processors. Source: proc(5), /proc/PID/task/TID/schedstat: nanoseconds on a
/// processor and nanoseconds in a run queue.
class ProcessorWaits {
 public:
  /// `threads`: a folder a thread; another one in tests.
  explicit ProcessorWaits(std::filesystem::path threads = "/proc/self/task") : threads_(std::move(threads)) {}
  /// Seconds that passed in the run queue since the last call for the thread for which most did; 0 at the first call,
  /// of threads that were not there at the last one, and where the kernel does not count.
  double since_last();
  /// The next call is a first one.
  void forget() { waited_.clear(); }

 private:
  const std::filesystem::path threads_;
  std::map<std::string, std::uint64_t> waited_;  // nanoseconds so far, by thread
};

}  // namespace rondo::schedule
