// See fake_streams.h.
#include "fake_streams.h"

#include <algorithm>
#include <atomic>

namespace rondo::devices::cuda::testing {

FakeCard& card() {
  static auto* const only = new FakeCard;
  return *only;
}

namespace {

/// Under the card's mutex, of a capture.
Result order_captured(Capture& capture, Stream* stream, Event* event, Task::Kind kind) {
  if (capture.broken) return kCaptureInvalidated;
  if (kind == Task::Kind::kRecord) {
    capture.recorded[event] = capture.last[stream];
    return kSuccess;
  }
  const auto found = capture.recorded.find(event);
  if (found == capture.recorded.end()) {  // an event from outside has no place in a graph
    capture.broken = true;
    return kCaptureIsolation;
  }
  Capture::Nodes& last = capture.last[stream];
  last.insert(last.end(), found->second.begin(), found->second.end());
  return kSuccess;
}

}  // namespace

Result order(const char* name, StreamHandle handle, Event* event, Task::Kind kind) {
  Stream* const stream = stream_of(handle);
  {
    const std::lock_guard<std::mutex> lock(card().mutex);
    Capture* capture = card().capture_of(stream);
    if (capture == nullptr && kind == Task::Kind::kWait) capture = card().capture_with(event);
    if (capture != nullptr) {
      const Result result = card().begin(name);
      if (result != kSuccess) return result;
      return card().lost != kSuccess ? card().lost : order_captured(*capture, stream, event, kind);
    }
  }
  return enqueue(name, handle, [event, kind](Task& task) {
    task.kind = kind;
    task.event = event;
    task.count = kind == Task::Kind::kRecord ? ++event->recorded : event->recorded;
  });
}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(card_.mutex);
    stopping_ = true;
    card_.changed.notify_all();
  }
  thread_.join();
}

Task& Stream::next(std::unique_lock<std::mutex>& lock) {
  while (count_ == kRing) card_.changed.wait(lock);
  return ring_[(head_ + count_) % kRing];
}

void Stream::serve() {
  std::unique_lock<std::mutex> lock(card_.mutex);
  for (;;) {
    while (count_ == 0 && !stopping_) card_.changed.wait(lock);
    if (count_ == 0) return;
    const Task& task = ring_[head_];
    if (task.kind == Task::Kind::kWait) {
      while (task.event->completed < task.count && card_.lost == kSuccess) card_.changed.wait(lock);
    } else if (task.kind == Task::Kind::kRecord) {
      task.event->completed = std::max(task.event->completed, task.count);
    } else if (task.kind == Task::Kind::kGraph) {
      execute(*task.executable, lock);
      --task.executable->in_flight;
    } else {
      execute(task, lock);
    }
    head_ = (head_ + 1) % kRing;
    --count_;
    card_.changed.notify_all();
  }
}

namespace {

void work(const Task& task) {
  if (task.kind == Task::Kind::kCopy) std::memmove(task.to, task.from, task.size);
  if (task.kind == Task::Kind::kSet) std::memset(task.to, task.value, task.size);
  if (task.kind == Task::Kind::kLaunch) run_on_host(task.launch, task.params.data());
}

/// Each node is a thread that waits for those before it and for nothing else.
[[maybe_unused]] void work_side_by_side(const std::vector<Graph::Node>& nodes) {
  std::vector<std::atomic<bool>> done(nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    threads.emplace_back([&nodes, &done, i] {
      for (const std::size_t before : nodes[i].after) done[before].wait(false);
      work(nodes[i].task);
      done[i] = true;
      done[i].notify_all();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void Stream::execute(const Executable& executable, std::unique_lock<std::mutex>& lock) {
#if defined(__SANITIZE_THREAD__)
  if (card_.lost != kSuccess) return;
  lock.unlock();
  work_side_by_side(executable.nodes);
  lock.lock();
#else
  for (const Graph::Node& node : executable.nodes) execute(node.task, lock);
#endif
}

void Stream::execute(const Task& task, std::unique_lock<std::mutex>& lock) {
  if (card_.lost != kSuccess) return;
  if (task.kind == Task::Kind::kLaunch && ++card_.launches == card_.script.fault_at) {
    card_.lost = card_.script.fault_result;
    return;
  }
  lock.unlock();
  work(task);
  lock.lock();
}

}  // namespace rondo::devices::cuda::testing
