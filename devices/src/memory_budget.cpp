// Behind rondo/devices/memory_budget.h: a count under a mutex.
#include "rondo/devices/memory_budget.h"

#include <algorithm>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::devices {

MemoryBudget::MemoryBudget(std::string name, Bytes limit) : name_(std::move(name)), limit_(limit) {}

absl::Status MemoryBudget::take(Bytes bytes) {
  const MutexLock lock(mutex_);
  if (bytes > limit_ - now_) {
    return resource_exhausted("{}: {} asked ({} bytes), {} bytes free of {}", name_, format_bytes(bytes), bytes,
                              limit_ - now_, limit_);
  }
  now_ += bytes;
  peak_ = std::max(peak_, now_);
  return absl::OkStatus();
}

void MemoryBudget::give_back(Bytes bytes) {
  const MutexLock lock(mutex_);
  now_ -= bytes;
}

Bytes MemoryBudget::now() const {
  const MutexLock lock(mutex_);
  return now_;
}

Bytes MemoryBudget::peak() const {
  const MutexLock lock(mutex_);
  return peak_;
}

}  // namespace rondo::devices
