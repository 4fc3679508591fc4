// The inside of the fake card: streams as threads, what is put into them, what is captured instead. One mutex guards
// everything; streams run their work outside it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver.h"
#include "fake_driver.h"
#include "host_kernels.h"
#include "steps.h"

namespace rondo::devices::cuda::testing {

// CUDA's, as cuda.h names them.
constexpr Result kInvalidValue = 1;
constexpr Result kIllegalState = 401;
constexpr Result kCaptureUnsupported = 900;
constexpr Result kCaptureInvalidated = 901;
constexpr Result kCaptureUnjoined = 904;
constexpr Result kCaptureIsolation = 905;
constexpr Result kCaptureWrongThread = 908;

constexpr const char* kNames[] = {
#define RONDO_NAME(member, name, parameters) name,
    RONDO_DRIVER_FUNCTIONS(RONDO_NAME) RONDO_GRAPH_FUNCTIONS(RONDO_NAME)
#undef RONDO_NAME
};
constexpr std::size_t kFunctions = std::size(kNames);

struct Event {
  std::uint64_t recorded = 0;   // how often it was put into a stream
  std::uint64_t completed = 0;  // how often it was reached
};

struct Executable;

struct Task {
  enum class Kind { kCopy, kSet, kLaunch, kRecord, kWait, kGraph } kind = Kind::kCopy;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t size = 0;
  unsigned char value = 0;
  HostLaunch launch;
  alignas(16) std::array<std::byte, kMostParams> params;
  Event* event = nullptr;
  std::uint64_t count = 0;  // kWait: until the event was reached so often; kRecord: its number
  Executable* executable = nullptr;
};

/// What was captured, in an order that its dependencies allow; these are places in that order.
struct Graph {
  struct Node {
    Task task;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
};
struct Executable {
  std::vector<Graph::Node> nodes;
  int in_flight = 0;
};

class FakeCard;

class Stream {
 public:
  explicit Stream(FakeCard& card) : card_(card), ring_(kRing), thread_([this] { serve(); }) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// A task to fill in, then push(). Called under the card's mutex.
  Task& next(std::unique_lock<std::mutex>& lock);
  void push() { ++count_; }
  bool idle() const { return count_ == 0; }

 private:
  static constexpr std::size_t kRing = 4096;
  void serve();
  void execute(const Executable& executable, std::unique_lock<std::mutex>& lock);
  void execute(const Task& task, std::unique_lock<std::mutex>& lock);

  FakeCard& card_;
  std::vector<Task> ring_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

/// One at a time of a stream and of a thread.
struct Capture {
  using Nodes = std::vector<std::size_t>;
  Stream* stream = nullptr;  // where it began
  std::thread::id thread;
  bool broken = false;
  std::vector<Graph::Node> nodes;
  std::map<Stream*, Nodes> last;     // of each stream that captures: what its next piece of work comes after
  std::map<Event*, Nodes> recorded;  // in those streams, since it began

  bool holds(Stream* one) const { return last.count(one) != 0; }
  Task& add(Stream* to) {
    nodes.push_back({{}, last[to]});
    last[to] = {nodes.size() - 1};
    return nodes.back().task;
  }
};

/// All under `mutex`.
class FakeCard {
 public:
  std::mutex mutex;
  std::condition_variable changed;
  FakeScript script;
  std::array<int, kFunctions> calls{};
  std::set<void*> allocations;                     // of the card
  std::set<void*> registered;                      // of the host
  std::map<FunctionHandle, unsigned> most_shared;  // where a function has been given more than all have
  std::size_t used = 0;
  int left = 0;
  int launches = 0;
  Result lost = kSuccess;
  std::string lacking;
  std::vector<std::unique_ptr<Capture>> captures;
  std::set<Graph*> graphs;
  std::set<Executable*> executables;

  /// Counts a call; what the script says it gives.
  Result begin(const char* name) {
    for (std::size_t i = 0; i < kFunctions; ++i) {
      if (std::strcmp(kNames[i], name) != 0) continue;
      ++calls[i];
      if (script.fail_at == calls[i] && script.fail_call == name) return script.fail_result;
    }
    return kSuccess;
  }
  /// For calls that a thread may not make while it captures (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL): they break it.
  bool may_not_now() {
    Capture* const own = find([](const Capture& one) { return one.thread == std::this_thread::get_id(); });
    if (own != nullptr) own->broken = true;
    return own != nullptr;
  }
  /// What the stream captures; null: nothing.
  Capture* capture_of(Stream* stream) {
    return find([stream](const Capture& one) { return one.holds(stream); });
  }
  /// Where the event was recorded; null: in no capture.
  Capture* capture_with(Event* event) {
    return find([event](const Capture& one) { return one.recorded.count(event) != 0; });
  }
  template <typename Predicate>
  Capture* find(Predicate is_it) {
    for (const auto& one : captures) {
      if (is_it(*one)) return one.get();
    }
    return nullptr;
  }
};

FakeCard& card();

inline Stream* stream_of(StreamHandle handle) { return reinterpret_cast<Stream*>(handle); }
inline Event* event_of(EventHandle handle) { return reinterpret_cast<Event*>(handle); }
inline void* pointer_of(DevicePointer address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

/// Puts a task into a stream, or into what the stream captures.
template <typename Fill>
Result enqueue(const char* name, StreamHandle handle, Fill fill) {
  std::unique_lock<std::mutex> lock(card().mutex);
  const Result result = card().begin(name);
  if (result != kSuccess) return result;
  if (card().lost != kSuccess) return card().lost;
  Stream& stream = *stream_of(handle);
  if (Capture* const capture = card().capture_of(&stream); capture != nullptr) {
    if (capture->broken) return kCaptureInvalidated;
    Task& task = capture->add(&stream);
    fill(task);
    if (task.kind != Task::Kind::kGraph) return kSuccess;
    capture->broken = true;  // a card takes it, but nobody here should need it
    return kCaptureUnsupported;
  }
  fill(stream.next(lock));
  stream.push();
  card().changed.notify_all();
  return kSuccess;
}

/// Records an event or waits for one. Where a stream captures that is a matter of the graph; a stream that waits for
/// an event of one that captures does so from then on.
Result order(const char* name, StreamHandle stream, Event* event, Task::Kind kind);

// Graphs: fake_graphs.cpp.
Result fake_capture_begin(StreamHandle stream, int mode);
Result fake_capture_end(StreamHandle stream, GraphHandle* graph);
Result fake_graph_instantiate(GraphExecHandle* executable, GraphHandle graph, unsigned long long flags);
Result fake_graph_upload(GraphExecHandle executable, StreamHandle stream);
Result fake_graph_launch(GraphExecHandle executable, StreamHandle stream);
Result fake_graph_destroy(GraphHandle graph);
Result fake_graph_exec_destroy(GraphExecHandle executable);

}  // namespace rondo::devices::cuda::testing
