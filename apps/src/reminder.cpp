#include "reminder.h"

#include <utility>

#include "rondo/base/thread.h"

namespace rondo::apps {

Reminder::Reminder(std::FILE* stream, Duration between) : stream_(stream), between_(between) {
  absl::StatusOr<std::thread> thread = start_thread("what is under way", [this] { run(); });
  if (thread.ok()) thread_ = *std::move(thread);
}

Reminder::~Reminder() {
  {
    const MutexLock lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Reminder::set(std::string line) {
  const MutexLock lock(mutex_);
  line_ = std::move(line);
}

void Reminder::run() {
  const MutexLock lock(mutex_);
  auto next = std::chrono::steady_clock::now() + between_;
  while (!done_) {
    if (changed_.wait_until(mutex_, next) || std::chrono::steady_clock::now() < next) continue;
    next += between_;
    if (done_ || line_.empty()) continue;
    const std::string text = line_ + "\n";
    std::fwrite(text.data(), 1, text.size(), stream_);
    std::fflush(stream_);
  }
}

}  // namespace rondo::apps
