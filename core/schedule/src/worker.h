// One device at work: a feeding thread that enqueues, a prefetching one that brings weights, one that retires finished
// microbatches (publishes boundaries, takes the loss) and one that brings gradients home.
//
// A visit is one slot's round; a worker's visits follow the plan's order, step after step. Counters only grow; every
// wait is for a counter, for a place in the activation store or for a parameter's version, all of which come from
// visits before in the plan's order, so there is no cycle. Lock order: the worker's mutex is never held while another
// is taken.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "program_cache.h"
#include "rondo/base/mutex.h"
#include "rondo/offload/activation_store.h"
#include "rondo/offload/gradient_home.h"
#include "rondo/schedule/executor.h"
#include "rondo/transfer/engine.h"
#include "slot_runner.h"

namespace rondo::schedule {

/// What a step means to all workers. Set by the executor while they are idle.
struct StepJob {
  std::uint32_t step = 0;
  std::uint64_t version = 0;  // of trained parameters that forwards need
  bool evaluate = false;
  std::uint64_t first_round = 0;  // counted over the run
  std::uint32_t microbatches = 0;
  std::vector<std::uint32_t> buckets;        // by microbatch
  std::vector<devices::BufferView> batches;  // packed, on the host
  std::vector<double> losses;                // by microbatch, written by workers
};

/// What workers share. Outlives them.
struct SharedState {
  const ExecutorParts* parts = nullptr;
  offload::ActivationStore* boundaries = nullptr;
  offload::GradientHome* gradients = nullptr;
  StepJob job;
  /// The first error stands; ends all waits everywhere.
  virtual void fail(const absl::Status& error) = 0;

 protected:
  ~SharedState() = default;
};

class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> make(SharedState& shared, partition::DeviceIndex index);
  ~Worker();

  /// The job in SharedState is to be done.
  void begin();
  /// All microbatches of the job are retired and all gradients home. Returns early after fail().
  void wait_until_done();
  /// Ends all waits; the threads leave.
  void stop();
  /// After stop(): waits for the threads. A thread that leaves with an error stops the other workers, so that none may
  /// be destroyed before all are joined.
  void join();

  Bytes peak_bytes() const { return device_.peak_bytes(); }
  const DeviceTrace* trace() const { return trace_.get(); }
  void clear_trace() {
    if (trace_ != nullptr) trace_->clear();
  }

 private:
  struct SlotState {
    std::uint32_t index = 0;  // in the plan
    partition::Slot slot;
    partition::WorkspaceLayout layout;
    std::vector<partition::LayerIndex> cuts;
    std::vector<ChainLink> train_chain;
    std::vector<ChainLink> evaluate_chain;
    /// By weight buffer: views of the layers' weights, [layer - first][parameter].
    std::array<std::vector<std::vector<devices::BufferView>>, 2> weights;
    /// By gradient buffer; entry 2: the home's own sums (unified devices, group 0).
    std::array<std::vector<std::vector<devices::BufferView>>, 3> gradients;
    std::vector<std::pair<model::ParameterId, devices::BufferView>>
        sent[3];                 // trained parameters and where their sum lies
    std::vector<bool> resident;  // by layer - first: its weights stay on the device
    bool computes_gradients = false;
    bool writes_rows = false;
  };
  struct Retirement {
    const SlotState* slot = nullptr;
    std::uint32_t microbatch = 0;  // of the step
    std::uint32_t round_microbatch = 0;
    std::uint64_t round = 0;
    std::uint64_t value = 0;  // of the compute timeline
    std::uint32_t parity = 0;
    std::uint32_t bucket = 0;
    bool ends_visit = false;
  };
  struct GradientErrand {
    const SlotState* slot = nullptr;
    std::uint32_t group = 0;
    std::uint32_t buffer = 0;
    std::uint64_t value = 0;
  };

  Worker(SharedState& shared, partition::DeviceIndex index);
  absl::Status prepare();
  absl::Status allocate();
  void empty_compute_queue();
  absl::Status prepare_slot(std::uint32_t slot_index);
  void place_weights(SlotState& state);
  void place_gradients(SlotState& state);
  absl::Status compile(const SlotState& state);

  void feed_loop();
  void prefetch_loop();
  void retire_loop();
  void gradient_loop();

  absl::Status feed_visit(SlotState& slot);
  absl::Status feed_group(SlotState& slot, std::uint32_t first, std::uint32_t end, std::uint32_t group);
  absl::Status feed_microbatch(SlotState& slot, std::uint32_t microbatch, std::uint32_t gradient_buffer,
                               bool ends_visit);
  absl::Status bring_inputs(const SlotState& slot, std::uint32_t microbatch, std::uint32_t parity, VisitMemory& memory);
  absl::Status wait_for_weights(const SlotState& slot, std::size_t layer);
  absl::Status prefetch_visit(const SlotState& slot);
  absl::Status submit_weights(const SlotState& slot, std::size_t place, std::size_t buffer, transfer::Ticket& last);
  absl::Status retire(const Retirement& item);
  absl::Status bring_gradients_home(const GradientErrand& errand);
  absl::StatusOr<std::uint32_t> take_gradient_buffer(std::uint32_t group);

  bool runs_in_job(const SlotState& slot) const;
  partition::Round round_of(const SlotState& slot) const;
  offload::BoundaryPlace place(offload::BoundaryKind kind, const SlotState& slot, std::uint32_t cut,
                               std::uint32_t microbatch) const;
  devices::WorkTag tag(const char* name, const SlotState& slot, std::uint32_t microbatch) const;
  std::chrono::steady_clock::time_point deadline() const;
  bool reads_activation_last(const SlotState& slot) const;
  void release_inputs(const SlotState& slot);

  /// Blocks while `condition` is false and nobody failed. False after a failure or stop.
  template <typename Condition>
  bool wait_for(Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void run_loop(void (Worker::*body)());

  SharedState& shared_;
  const ExecutorParts& parts_;
  const partition::DeviceIndex index_;
  devices::Device& device_;
  const bool unified_;
  ProgramCache programs_;
  std::unique_ptr<transfer::TransferEngine> engine_;
  std::unique_ptr<devices::Timeline> compute_;
  std::unique_ptr<devices::Timeline> end_;  // reached when nothing of this worker is enqueued any more
  std::unique_ptr<DeviceTrace> trace_;
  std::vector<SlotState> slots_;

  // Device memory.
  devices::Buffer resident_;  // weights that stay
  std::array<devices::Buffer, 2> weights_;
  std::array<devices::Buffer, 4> inputs_;  // activation and gradient by parity
  std::vector<devices::Buffer> outputs_;   // parity * cuts + cut
  std::array<devices::Buffer, 2> batches_;
  std::array<devices::Buffer, 2> gradients_;
  devices::Buffer workspace_;
  // Host memory.
  std::array<devices::Buffer, 2> losses_;  // 8 bytes each
  devices::Buffer gradient_staging_;       // groups past the first, of devices that are not unified
  devices::Buffer row_staging_;
  std::array<std::vector<devices::Bindings>, 2> bindings_;
  std::array<VisitMemory, 2> memory_;
  std::size_t most_cuts_ = 0;
  std::uint64_t compute_value_ = 0;         // only the feeding thread's
  const SlotState* slot_before_ = nullptr;  // likewise: of the last microbatch
  bool clear_before_gradients_ = false;     // likewise: a group has begun
  std::vector<std::uint64_t> held_;  // only the prefetching thread's; by layer: 1 + version of its weights in resident_

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t jobs_fed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t jobs_prefetched_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t microbatches_fed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t microbatches_retired_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t visits_fed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t visits_retired_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t visits_prefetched_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t layers_ready_ ABSL_GUARDED_BY(mutex_) = 0;  // of visit visits_prefetched_
  std::uint64_t errands_given_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t errands_done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<Retirement, 4> retirements_ ABSL_GUARDED_BY(mutex_);
  std::array<GradientErrand, 4> errands_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace rondo::schedule
