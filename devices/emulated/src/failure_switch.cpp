// Behind failure_switch.h: counts by queue, and the clock from the card's first work.
#include "failure_switch.h"

#include <chrono>
#include <utility>

namespace rondo::devices::emulated {
namespace {

const char* name_of_role(QueueRole role) {
  switch (role) {
    case QueueRole::kCompute:
      return "compute";
    case QueueRole::kUp:
      return "up";
    case QueueRole::kDown:
      return "down";
  }
  return "";
}

}  // namespace

FailureSwitch::FailureSwitch(FailurePlan plan) : plan_(std::move(plan)) {}

FailurePlan::Kind FailureSwitch::next(QueueRole role, Moment ready) {
  const MutexLock lock(mutex_);
  const std::uint64_t count = ++counts_[static_cast<std::size_t>(role)];
  if (!begun_) {
    begun_ = true;
    first_ = ready;
  }
  if (plan_.kind == FailurePlan::Kind::kNone || fired_) return FailurePlan::Kind::kNone;
  const bool due = plan_.queue.empty() ? std::chrono::duration<double>(ready - first_).count() >= plan_.at_seconds
                                       : plan_.queue == name_of_role(role) && count == plan_.at_work;
  if (!due) return FailurePlan::Kind::kNone;
  fired_ = true;
  return plan_.kind;
}

void FailureSwitch::hang() {
  const MutexLock lock(mutex_);
  while (!released_) released_changed_.wait(mutex_);
}

void FailureSwitch::release() {
  const MutexLock lock(mutex_);
  released_ = true;
  released_changed_.notify_all();
}

}  // namespace rondo::devices::emulated
