#include "rondo/base/thread.h"

#include <system_error>
#include <utility>

#include "rondo/base/status.h"

namespace rondo {

absl::StatusOr<std::thread> start_thread(std::string_view purpose, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return resource_exhausted(
        "no thread for {}: {}; this process may have no more of them: raise the limit (ulimit -u, the container's on "
        "pids, TasksMax of the service) or free memory",
        purpose, error.code().message());
  }
}

}  // namespace rondo
