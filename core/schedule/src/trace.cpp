#include "rondo/schedule/trace.h"

#include <algorithm>
#include <map>
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

bool carries(const TraceSpan& span, std::string_view what) { return span.tag.name == what; }

/// Spans count over the step. What is of no microbatch, or of a group that the round goes on with, has the first one.
std::uint32_t microbatch_in_slot(const devices::WorkTag& tag, const partition::Plan& plan) {
  if (tag.slot >= plan.slots.size()) return tag.microbatch;
  return tag.microbatch - std::min(tag.microbatch, plan.rounds[plan.slots[tag.slot].round].first_microbatch);
}

nlohmann::json event_of(const TraceSpan& span, std::size_t process, std::chrono::steady_clock::time_point start,
                        const partition::Plan& plan) {
  nlohmann::json event = {{"name", span.tag.name},
                          {"ph", "X"},
                          {"pid", process},
                          {"tid", static_cast<int>(span.role)},
                          {"ts", microseconds(span.begin - start)},
                          {"dur", microseconds(span.end - span.begin)}};
  nlohmann::json& args = event["args"];
  args["step"] = span.tag.step;
  args["slot"] = span.tag.slot;
  const bool weights = carries(span, "weights");
  if (weights) event["cat"] = "weights";
  if (!weights) args["microbatch"] = microbatch_in_slot(span.tag, plan);
  return event;
}

/// The arrows of one device: from the upload that a visit of a microbatch waited for to its arithmetic and on to the
/// download of its result, and from a slot's weights to the first arithmetic that they were there for.
class Flows {
 public:
  Flows(std::size_t process, std::chrono::steady_clock::time_point start, std::vector<TraceSpan> spans)
      : process_(process), start_(start), spans_(std::move(spans)) {}

  /// Appends the events; `id` is that of the next flow in the document.
  void append_to(nlohmann::json& events, std::uint64_t& id) {
    std::ranges::stable_sort(spans_, {}, &TraceSpan::begin);
    collect();
    for (const auto& [key, visit] : visits_) {
      if (visit.first == nullptr || (visit.up == nullptr && visit.down == nullptr)) continue;
      std::vector<const TraceSpan*> way;
      if (visit.up != nullptr) way.push_back(visit.up);
      way.push_back(visit.first);
      if (visit.last != visit.first) way.push_back(visit.last);
      if (visit.down != nullptr) way.push_back(visit.down);
      append("microbatch", way, events, id);
    }
    for (const auto& [key, way] : weights_) {
      if (way.second != nullptr) append("weights", {way.first, way.second}, events, id);
    }
  }

 private:
  struct Visit {
    const TraceSpan* up = nullptr;  // the last
    const TraceSpan* first = nullptr;
    const TraceSpan* last = nullptr;
    const TraceSpan* down = nullptr;  // the first after some arithmetic
  };

  void collect() {
    for (const TraceSpan& span : spans_) {
      const std::pair slot{span.tag.step, span.tag.slot};
      Visit& visit = visits_[{slot, span.tag.microbatch}];
      if (span.role == devices::QueueRole::kUp) {
        if (carries(span, "weights")) weights_[slot] = {&span, nullptr};
        if (carries(span, "activations") && visit.first == nullptr) visit.up = &span;
      } else if (span.role == devices::QueueRole::kDown) {
        if (carries(span, "activations") && visit.first != nullptr && visit.down == nullptr) visit.down = &span;
      } else if (!carries(span, "clear")) {
        if (visit.first == nullptr) visit.first = &span;
        if (visit.down == nullptr) visit.last = &span;
        const auto arrived = weights_.find(slot);
        const bool waited = arrived != weights_.end() && arrived->second.first->end <= span.begin;
        if (waited && arrived->second.second == nullptr) arrived->second.second = &span;
      }
    }
  }

  void append(const char* name, const std::vector<const TraceSpan*>& way, nlohmann::json& events,
              std::uint64_t& id) const {
    for (std::size_t i = 0; i < way.size(); ++i) {
      nlohmann::json event = {{"name", name},
                              {"cat", "flow"},
                              {"ph", i == 0                ? "s"
                                     : i + 1 == way.size() ? "f"
                                                           : "t"},
                              {"id", id},
                              {"pid", process_},
                              {"tid", static_cast<int>(way[i]->role)},
                              {"ts", microseconds(way[i]->begin - start_)}};
      if (i > 0) event["bp"] = "e";  // the arrow meets the piece of work that begins there
      events.push_back(std::move(event));
    }
    ++id;
  }

  const std::size_t process_;
  const std::chrono::steady_clock::time_point start_;
  std::vector<TraceSpan> spans_;
  using SlotKey = std::pair<std::uint32_t, std::uint32_t>;  // step, slot
  std::map<std::pair<SlotKey, std::uint32_t>, Visit> visits_;
  std::map<SlotKey, std::pair<const TraceSpan*, const TraceSpan*>> weights_;
};

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

absl::Status write_trace(const std::filesystem::path& file, const std::vector<const DeviceTrace*>& devices,
                         const partition::Plan& plan) {
  nlohmann::json events = nlohmann::json::array();
  auto start = std::chrono::steady_clock::time_point::max();
  for (const DeviceTrace* device : devices) {
    for (const TraceSpan& span : device->spans()) start = std::min(start, span.begin);
  }
  constexpr const char* kQueues[] = {"compute", "up", "down"};
  std::uint64_t flow = 1;
  for (std::size_t process = 0; process < devices.size(); ++process) {
    events.push_back(named("process_name", process, 0, devices[process]->name()));
    for (std::size_t thread = 0; thread < 3; ++thread) {
      events.push_back(named("thread_name", process, thread, kQueues[thread]));
    }
    std::vector<TraceSpan> spans = devices[process]->spans();
    for (const TraceSpan& span : spans) events.push_back(event_of(span, process, start, plan));
    Flows(process, start, std::move(spans)).append_to(events, flow);
  }
  const nlohmann::json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return write_file_atomically(file, document.dump());
}

}  // namespace rondo::schedule
