#include "rondo/schedule/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "rondo/base/file.h"

namespace rondo::schedule {
namespace {

double microseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

nlohmann::json named(const char* what, std::size_t process, std::size_t thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

nlohmann::json event_of(const TraceSpan& span, std::size_t process, std::chrono::steady_clock::time_point start) {
  nlohmann::json event = {{"name", span.tag.name},
                          {"ph", "X"},
                          {"pid", process},
                          {"tid", static_cast<int>(span.role)},
                          {"ts", microseconds(span.begin - start)},
                          {"dur", microseconds(span.end - span.begin)}};
  nlohmann::json& args = event["args"];
  args["step"] = span.tag.step;
  args["slot"] = span.tag.slot;
  const bool weights = std::string_view(span.tag.name) == "weights";
  if (weights) event["cat"] = "weights";
  if (!weights) args["microbatch"] = span.tag.microbatch;
  return event;
}

}  // namespace

void DeviceTrace::on_work(devices::QueueRole role, const devices::WorkTag& tag,
                          std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  const MutexLock lock(mutex_);
  if (role == devices::QueueRole::kCompute) {
    compute_seconds_ += std::chrono::duration<double>(end - begin).count();
  } else if (traced_ == Traced::kComputing) {
    return;
  }
  const std::size_t index = next_++;
  if (index < spans_.size()) spans_[index] = {begin, end, role, tag};
}

std::vector<TraceSpan> DeviceTrace::spans() const {
  const MutexLock lock(mutex_);
  const std::size_t count = std::min(next_, spans_.size());
  return {spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::size_t DeviceTrace::dropped() const {
  const MutexLock lock(mutex_);
  return next_ > spans_.size() ? next_ - spans_.size() : 0;
}

double DeviceTrace::compute_seconds() const {
  const MutexLock lock(mutex_);
  return compute_seconds_;
}

std::size_t DeviceTrace::take(std::vector<TraceSpan>& other) {
  const MutexLock lock(mutex_);
  other.resize(spans_.size());
  other.swap(spans_);
  return std::min(std::exchange(next_, 0), other.size());
}

void DeviceTrace::clear() {
  const MutexLock lock(mutex_);
  next_ = 0;
}

absl::Status write_trace(const std::filesystem::path& file, const std::vector<const DeviceTrace*>& devices) {
  nlohmann::json events = nlohmann::json::array();
  auto start = std::chrono::steady_clock::time_point::max();
  for (const DeviceTrace* device : devices) {
    for (const TraceSpan& span : device->spans()) start = std::min(start, span.begin);
  }
  constexpr const char* kQueues[] = {"compute", "up", "down"};
  for (std::size_t process = 0; process < devices.size(); ++process) {
    events.push_back(named("process_name", process, 0, devices[process]->name()));
    for (std::size_t thread = 0; thread < 3; ++thread) {
      events.push_back(named("thread_name", process, thread, kQueues[thread]));
    }
    for (const TraceSpan& span : devices[process]->spans()) events.push_back(event_of(span, process, start));
  }
  const nlohmann::json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return write_file_atomically(file, document.dump());
}

}  // namespace rondo::schedule
