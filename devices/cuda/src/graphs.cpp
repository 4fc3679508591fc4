// Capturing, launching, giving up; see graphs.h.
#include "graphs.h"

#include <algorithm>

#include "lanes.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

/// Looking for room goes over all graphs: after a look in vain, not again for so many turns.
constexpr std::uint64_t kTurnsBetweenLooks = 256;

/// Every bit of the word into every bit of the hash (the finaliser of MurmurHash3).
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) + 0x9E3779B97F4A7C15U;
  hash = (hash ^ (hash >> 33U)) * 0xFF51AFD7ED558CCDU;
  hash = (hash ^ (hash >> 33U)) * 0xC4CEB9FE1A85EC53U;
  return hash ^ (hash >> 33U);
}

/// Never 0, which is an empty place.
std::uint64_t hash_of(const RunKey& key) {
  std::uint64_t hash = mixed(key.words.size(), key.program);
  for (const std::uint64_t word : key.words) hash = mixed(hash, word);
  return hash == 0 ? 1 : hash;
}

}  // namespace

bool Graphs::Graph::is_of(const RunKey& key) const {
  return program == key.program && std::ranges::equal(words, key.words);
}

absl::Status Graphs::run(const RunKey& key, const Turn& turn, Send send) {
  const MutexLock lock(mutex_);
  if (closed_ || refused_.contains(key.program)) return send(nullptr);
  const std::uint64_t hash = hash_of(key);
  if (const auto found = graphs_.find(hash); found != graphs_.end()) {
    return found->second.is_of(key) ? launch(found->second, turn) : send(nullptr);
  }
  if (!was_seen(hash) || !make_room(key.steps, turn)) return send(nullptr);
  Graph graph;
  const absl::Status made = make(graph, key.steps, turn.stream, send);
  if (!made.ok()) {
    // Nothing was executed. What the steps themselves cannot do they will say when they are sent.
    RONDO_RETURN_IF_ERROR(context_->lost());
    refused_.insert(key.program);
    return send(nullptr);
  }
  graph.program = key.program;
  graph.steps = key.steps;
  graph.words.assign(key.words.begin(), key.words.end());
  graph.stream = turn.stream;
  steps_ += key.steps;
  return launch(graphs_.emplace(hash, std::move(graph)).first->second, turn);
}

absl::Status Graphs::launch(Graph& graph, const Turn& turn) {
  graph.last_turn = turn.number;
  const absl::Status status =
      context_->check(context_->driver().graph_launch(graph.executable, turn.stream), "cuGraphLaunch");
  // The attempt has failed: sums may be added to already, so the steps are not sent after it. Others go without.
  if (!status.ok()) refused_.insert(graph.program);
  return status;
}

absl::Status Graphs::make(Graph& graph, std::size_t steps, StreamHandle stream, Send send) {
  const Driver& driver = context_->driver();
  const bool beside = limits_.lanes > 1;
  LaneStreams lanes;
  if (beside) {
    RONDO_RETURN_IF_ERROR(make_lanes(steps));
    lanes = {side_, events_};
  }
  GraphHandle captured = nullptr;
  absl::Status status = capture(captured, stream, beside ? &lanes : nullptr, send);
  if (status.ok()) {
    status = context_->check(driver.graph_instantiate(&graph.executable, captured, 0), "cuGraphInstantiateWithFlags");
  }
  if (captured != nullptr) status.Update(context_->check(driver.graph_destroy(captured), "cuGraphDestroy"));
  // The memory on the card is taken here, where failing harms nobody, and not at the first launch.
  if (status.ok()) status = context_->check(driver.graph_upload(graph.executable, stream), "cuGraphUpload");
  if (!status.ok() && graph.executable != nullptr) (void)driver.graph_exec_destroy(graph.executable);
  return status;
}

/// Once for the largest run: nothing is executed by these streams, and nothing recorded but while a run is captured.
absl::Status Graphs::make_lanes(std::size_t steps) {
  const Driver& driver = context_->driver();
  while (side_.size() + 1 < limits_.lanes) {
    StreamHandle stream = nullptr;
    RONDO_RETURN_IF_ERROR(context_->check(driver.stream_create(&stream, kStreamNonBlocking), "cuStreamCreate"));
    side_.push_back(stream);
  }
  while (events_.size() < steps + 1) {
    EventHandle event = nullptr;
    RONDO_RETURN_IF_ERROR(context_->check(driver.event_create(&event, kEventDisableTiming), "cuEventCreate"));
    events_.push_back(event);
  }
  return absl::OkStatus();
}

absl::Status Graphs::capture(GraphHandle& captured, StreamHandle stream, const LaneStreams* lanes, Send send) const {
  const Driver& driver = context_->driver();
  RONDO_RETURN_IF_ERROR(context_->check(driver.capture_begin(stream, kCaptureThreadLocal), "cuStreamBeginCapture"));
  absl::Status status = send(lanes);
  // In any case: the stream must execute again what is sent to it.
  status.Update(context_->check(driver.capture_end(stream, &captured), "cuStreamEndCapture"));
  if (status.ok() && captured == nullptr) status = internal_error("cuStreamEndCapture gave no graph");
  return status;
}

/// Notes the key if it was not.
bool Graphs::was_seen(std::uint64_t hash) {
  auto& row = seen_[hash % kRows];
  if (std::ranges::find(row, hash) != row.end()) return true;
  std::ranges::copy_backward(row.begin(), row.end() - 1, row.end());
  row.front() = hash;
  return false;
}

bool Graphs::make_room(std::size_t steps, const Turn& turn) {
  if (turn.number < full_until_) return false;
  const std::uint64_t finished = finished_.load(std::memory_order_acquire);
  while (steps_ + steps > limits_.steps) {
    const auto oldest =
        std::ranges::min_element(graphs_, {}, [](const Table::value_type& graph) { return graph.second.last_turn; });
    if (oldest == graphs_.end() || oldest->second.last_turn > finished ||
        oldest->second.last_turn + limits_.idle_turns > turn.number) {
      full_until_ = turn.number + kTurnsBetweenLooks;
      return false;
    }
    give_up(oldest);
  }
  const absl::StatusOr<Context::FreeMemory> memory = context_->free_memory();
  if (memory.ok() && memory->free >= limits_.free_memory) return true;
  full_until_ = turn.number + kTurnsBetweenLooks;
  return false;
}

Graphs::Table::iterator Graphs::give_up(Table::iterator graph) {
  const Driver& driver = context_->driver();
  const Graph& gone = graph->second;
  // The driver would put it off by itself; this keeps to what every one of them can.
  if (gone.last_turn > finished_.load(std::memory_order_acquire)) (void)driver.stream_synchronize(gone.stream);
  (void)driver.graph_exec_destroy(gone.executable);
  steps_ -= gone.steps;
  return graphs_.erase(graph);
}

void Graphs::forget(std::uint32_t program) {
  const MutexLock lock(mutex_);
  refused_.erase(program);
  if (graphs_.empty() || !context_->enter().ok()) return;
  for (auto graph = graphs_.begin(); graph != graphs_.end();) {
    graph = graph->second.program == program ? give_up(graph) : std::next(graph);
  }
}

void Graphs::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  if (!context_->enter().ok()) return;
  for (auto graph = graphs_.begin(); graph != graphs_.end();) graph = give_up(graph);
  for (const EventHandle event : events_) (void)context_->driver().event_destroy(event);
  for (const StreamHandle stream : side_) (void)context_->driver().stream_destroy(stream);
  events_.clear();
  side_.clear();
}

}  // namespace rondo::devices::cuda
