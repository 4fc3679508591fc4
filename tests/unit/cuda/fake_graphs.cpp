// Graphs of the fake card: captured work is kept, copied at instantiation and run in the stream's order at a launch.
//
// Stricter than a card where that finds mistakes: a graph that is destroyed while it may be running, or used after it
// was destroyed, ends the program. Of the orders that its dependencies allow, a graph is executed in one that is as
// unlike the order of capturing as can be, or in a random one; under a thread sanitizer all that may run side by side
// does.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>

#include "fake_streams.h"

namespace rondo::devices::cuda::testing {
namespace {

[[noreturn]] void misused(const char* how) {
  std::fprintf(stderr, "%s\n", how);
  std::abort();
}

Executable* executable_of(GraphExecHandle handle) {
  auto* const executable = reinterpret_cast<Executable*>(handle);
  if (card().executables.count(executable) == 0) misused("a graph is used that is not there");
  return executable;
}

/// Whether the stream where the capture began comes after everything that was captured.
bool is_joined(const Capture& capture) {
  std::vector<bool> before(capture.nodes.size());
  for (const std::size_t node : capture.last.at(capture.stream)) before[node] = true;
  for (std::size_t i = capture.nodes.size(); i-- > 0;) {
    if (!before[i]) return false;
    for (const std::size_t node : capture.nodes[i].after) before[node] = true;
  }
  return true;
}

/// Graphs in turn: of what may come next always what was captured last, or any.
std::vector<Graph::Node> in_some_order(const Capture& capture) {
  static std::minstd_rand random;
  static bool last_first = false;
  last_first = !last_first;
  std::vector<Graph::Node> nodes;
  std::vector<std::optional<std::size_t>> place(capture.nodes.size());  // in that order, once it has one
  while (nodes.size() < capture.nodes.size()) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < capture.nodes.size(); ++i) {
      const auto& after = capture.nodes[i].after;
      const auto is_placed = [&](std::size_t node) { return place[node].has_value(); };
      if (!place[i] && std::all_of(after.begin(), after.end(), is_placed)) ready.push_back(i);
    }
    const std::size_t next = last_first ? ready.back() : ready[random() % ready.size()];
    place[next] = nodes.size();
    Graph::Node& node = nodes.emplace_back(capture.nodes[next]);
    for (std::size_t& before : node.after) before = *place[before];
  }
  return nodes;
}

}  // namespace

Result fake_capture_begin(StreamHandle stream, int mode) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuStreamBeginCapture");
  if (result != kSuccess) return result;
  if (card().lost != kSuccess) return card().lost;
  if (mode != kCaptureThreadLocal) return kInvalidValue;  // what may_not_now() is true to
  const auto thread = std::this_thread::get_id();
  const auto meets = [&](const Capture& one) { return one.holds(stream_of(stream)) || one.thread == thread; };
  if (card().find(meets) != nullptr) return kIllegalState;
  card().captures.push_back(
      std::make_unique<Capture>(Capture{stream_of(stream), thread, false, {}, {{stream_of(stream), {}}}, {}}));
  return kSuccess;
}

Result fake_capture_end(StreamHandle stream, GraphHandle* graph) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  *graph = nullptr;
  auto& captures = card().captures;
  const auto own =
      std::find_if(captures.begin(), captures.end(), [&](const auto& one) { return one->stream == stream_of(stream); });
  if (own == captures.end()) return kIllegalState;
  const Capture capture = std::move(**own);
  captures.erase(own);
  const Result result = card().begin("cuStreamEndCapture");
  if (result != kSuccess) return result;
  if (capture.thread != std::this_thread::get_id()) return kCaptureWrongThread;
  if (card().lost != kSuccess) return card().lost;
  if (capture.broken) return kCaptureInvalidated;
  if (!is_joined(capture)) return kCaptureUnjoined;
  auto* const made = new Graph{in_some_order(capture)};
  card().graphs.insert(made);
  *graph = reinterpret_cast<GraphHandle>(made);
  ++card().left;
  return kSuccess;
}

Result fake_graph_instantiate(GraphExecHandle* executable, GraphHandle graph, unsigned long long flags) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuGraphInstantiateWithFlags");
  if (result != kSuccess) return result;
  if (card().lost != kSuccess) return card().lost;
  auto* const from = reinterpret_cast<Graph*>(graph);
  if (flags != 0 || card().graphs.count(from) == 0) return kInvalidValue;
  auto* const made = new Executable{from->nodes, 0};
  card().executables.insert(made);
  *executable = reinterpret_cast<GraphExecHandle>(made);
  ++card().left;
  return kSuccess;
}

Result fake_graph_upload(GraphExecHandle executable, StreamHandle) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  const Result result = card().begin("cuGraphUpload");
  if (result != kSuccess) return result;
  executable_of(executable);
  return card().lost;
}

Result fake_graph_launch(GraphExecHandle executable, StreamHandle stream) {
  return enqueue("cuGraphLaunch", stream, [executable](Task& task) {
    task.kind = Task::Kind::kGraph;
    task.executable = executable_of(executable);
    ++task.executable->in_flight;
  });
}

Result fake_graph_destroy(GraphHandle graph) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  auto* const gone = reinterpret_cast<Graph*>(graph);
  if (card().graphs.erase(gone) == 0) misused("a graph is destroyed that is not there");
  delete gone;
  --card().left;
  return card().begin("cuGraphDestroy");
}

Result fake_graph_exec_destroy(GraphExecHandle executable) {
  const std::lock_guard<std::mutex> lock(card().mutex);
  Executable* const gone = executable_of(executable);
  if (gone->in_flight != 0) misused("a graph is destroyed that the card may be executing");
  card().executables.erase(gone);
  delete gone;
  --card().left;
  return card().begin("cuGraphExecDestroy");
}

}  // namespace rondo::devices::cuda::testing
