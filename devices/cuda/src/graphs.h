// Runs of a device's programs as CUDA graphs: what recurs is captured once and then launched as a whole.
//
// A run is known by its program and by every address and number that its steps are given (RunKey). The first run of a
// key goes to the stream step by step, so that bindings which do not recur cost nothing; the second is captured into a
// graph, and from then on one call replays it. Where the driver refuses to make a graph the run goes step by step, and
// so does its program from then on. The number of steps in graphs is bounded; room is made by giving up graphs that
// have not run for long, never one that the card may still be executing.
//
// Lock order: the device's submit lock, then this one's, then the context's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "context.h"
#include "rondo/base/mutex.h"
#include "turn.h"

namespace rondo::devices::cuda {

struct GraphLimits {
  std::size_t lanes = 3;             // that the ops of a run are dealt to, 1 to kMostLanes (lanes.h)
  std::size_t steps = 32768;         // of all graphs together
  std::uint64_t idle_turns = 16384;  // of the queue, after which a graph may make room for another
  Bytes free_memory = 128_MiB;       // that making a graph leaves alone
};

/// What a run's work follows from, and nothing else: equal keys are equal work.
struct RunKey {
  std::uint32_t program = 0;  // a number from Graphs::add_program()
  std::size_t steps = 0;
  std::span<const std::uint64_t> words;  // addresses and numbers, in an order that is the program's
};

/// What the pieces of a run are put beside each other with while they are captured. The first lane is the turn's
/// stream.
struct LaneStreams {
  std::span<const StreamHandle> side;   // the other lanes
  std::span<const EventHandle> events;  // one for each step, and one more
};

class Graphs {
 public:
  /// Sends the steps to the turn's stream, or to it and to others that wait for it and it for them. `lanes` may be
  /// null.
  using Send = absl::FunctionRef<absl::Status(const LaneStreams* lanes)>;

  explicit Graphs(std::shared_ptr<Context> context, const GraphLimits& limits = {})
      : context_(std::move(context)), limits_(limits) {}
  ~Graphs() { close(); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  /// A number that no other program has.
  std::uint32_t add_program() { return ++programs_; }
  /// Sends a run to the turn's stream: by its graph, or by `send`, which sends its steps there. REQUIRES: the submit
  /// lock; all runs come to one stream, their turns in rising order. Errors: those of `send`; the driver's, when the
  /// card is lost or a launch fails.
  absl::Status run(const RunKey& key, const Turn& turn, Send send);
  /// The card has done everything up to this turn.
  void finished(std::uint64_t turn) { finished_.store(turn, std::memory_order_release); }
  /// Gives a program's graphs up, waiting for the stream should one be in flight.
  void forget(std::uint32_t program);
  /// Gives all up; runs go step by step from now on. REQUIRES: the streams are still there.
  void close();

 private:
  struct Graph {
    GraphExecHandle executable = nullptr;
    std::uint32_t program = 0;
    std::size_t steps = 0;
    std::vector<std::uint64_t> words;
    StreamHandle stream = nullptr;
    std::uint64_t last_turn = 0;

    bool is_of(const RunKey& key) const;
  };
  using Table = std::unordered_map<std::uint64_t, Graph>;  // by the key's hash

  absl::Status launch(Graph& graph, const Turn& turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status make(Graph& graph, std::size_t steps, StreamHandle stream, Send send)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status capture(GraphHandle& captured, StreamHandle stream, const LaneStreams* lanes, Send send) const;
  absl::Status make_lanes(std::size_t steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool was_seen(std::uint64_t hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool make_room(std::size_t steps, const Turn& turn) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Table::iterator give_up(Table::iterator graph) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Hashes of keys that ran once, the newest in front. A key that is crowded out begins anew.
  static constexpr std::size_t kRows = 1024;
  static constexpr std::size_t kPlaces = 4;

  const std::shared_ptr<Context> context_;
  const GraphLimits limits_;
  std::atomic<std::uint32_t> programs_ = 0;
  std::atomic<std::uint64_t> finished_ = 0;  // released when the event of that turn was seen
  Mutex mutex_;
  Table graphs_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<std::uint32_t> refused_ ABSL_GUARDED_BY(mutex_);  // programs
  std::array<std::array<std::uint64_t, kPlaces>, kRows> seen_ ABSL_GUARDED_BY(mutex_) = {};
  std::size_t steps_ ABSL_GUARDED_BY(mutex_) = 0;         // in graphs
  std::uint64_t full_until_ ABSL_GUARDED_BY(mutex_) = 0;  // a turn
  std::vector<StreamHandle> side_ ABSL_GUARDED_BY(mutex_);
  std::vector<EventHandle> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rondo::devices::cuda
