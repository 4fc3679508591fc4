// One device at work: a feeding thread that enqueues, a prefetching one that brings weights, one that retires finished
// microbatches (publishes boundaries, takes the loss) and one that brings gradients home.
//
// A visit is one slot's round; a worker's visits follow the plan's order, step after step. Counters only grow; every
// wait is for a counter, for a place in the activation store or for a parameter's version, all of which come from
// visits before in the plan's order, so there is no cycle. Lock order: the worker's mutex is never held while another
// is taken.
//
// A worker may also take over the slots that a lost device has left unfinished, for the rest of one job and beside the
// device's own worker: it goes on where the ledger says that the lost one stopped, in memory of its own. What is
// published already it computes again where a gradient needs it, but does not publish twice.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "hang_bound.h"
#include "ledger.h"
#include "program_cache.h"
#include "rondo/base/mutex.h"
#include "rondo/offload/activation_store.h"
#include "rondo/offload/gradient_home.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/executor.h"
#include "rondo/transfer/engine.h"
#include "slot_runner.h"

namespace rondo::schedule {

class CardState;

/// What a step means to all workers. Set by the executor before the step begins; stays until the step has ended.
struct StepJob {
  std::uint32_t step = 0;
  std::uint64_t version = 0;  // of trained parameters that forwards need
  bool evaluate = false;
  bool last = false;              // no other one is expected
  std::uint64_t first_round = 0;  // counted over the run
  std::uint32_t microbatches = 0;
  std::vector<std::uint32_t> buckets;        // by microbatch
  std::vector<devices::BufferView> batches;  // packed, on the host
  std::vector<double> losses;                // by microbatch, written by workers
  std::uint32_t which = 0;                   // of the jobs that may be under way at a time
  Ledger* ledger = nullptr;
  offload::GradientHome* gradients = nullptr;
};

/// Steps that may be under way at a time: two at staleness 1.
inline constexpr std::size_t kMostJobs = 2;

/// What workers share. Outlives them.
struct SharedState {
  const ExecutorParts* parts = nullptr;
  const partition::Plan* plan = nullptr;
  offload::ActivationStore* boundaries = nullptr;
  CardState* card_state = nullptr;  // of the only device, where that holds the state of what is trained
  std::array<StepJob, kMostJobs> jobs;
  /// The first error stands; ends all waits everywhere.
  virtual void fail(const absl::Status& error) = 0;
  /// A device is lost: ends the waits of its workers.
  virtual void lose(partition::DeviceIndex device, const absl::Status& why) = 0;

 protected:
  ~SharedState() = default;
};

/// What a worker does: slots of the plan, in its order.
struct Assignment {
  partition::DeviceIndex device = 0;
  std::vector<std::uint32_t> slots;
  bool taken_over = false;  // from a lost device, in the middle of a job
};

/// Microbatches of a slot's round in the job.
partition::Round round_in_job(const SharedState& shared, const StepJob& job, const partition::Slot& slot);
/// What a slot's microbatches [first, end) of the step read is needed no more, of those that are done for good:
/// retired, and the gradients of their group home. Until then another device could have to run them again. In
/// evaluation the checkpoints of backward slots are released by nobody else, so the forward slot that published them
/// does.
void release_inputs(const SharedState& shared, const StepJob& job, std::uint32_t slot, std::uint32_t first,
                    std::uint32_t end);
/// Of all of its microbatches.
void release_inputs(const SharedState& shared, const StepJob& job, std::uint32_t slot);

class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> make(SharedState& shared, Assignment assignment);
  /// REQUIRES: end() said that it is free, or it never worked.
  ~Worker();

  const Assignment& assignment() const { return assignment_; }
  /// One of the jobs in SharedState is to be done, after those that have begun.
  void begin(StepJob& job);
  /// All microbatches of the job that began last but `ahead` are retired and all its gradients home. Returns early
  /// after stop() and when `interrupted` is set and wake() called.
  void wait_until_done(std::uint32_t ahead, const std::atomic<bool>& interrupted);
  void wake();
  /// Ends all waits with `why`; the threads leave, save those that a hung device holds.
  void stop(const absl::Status& why);
  /// After stop(): waits until no thread will touch anything shared again; those inside a call of the device are left
  /// there.
  void wait_until_still();
  /// The same, and no queue of the device will either; gives up when the device has been still for so long that it
  /// counts as hung.
  void wait_until_unused();
  enum class Ending : std::uint8_t {
    kFree,           // it may be destroyed
    kMemoryInUse,    // a queue of the device may still use its memory
    kThreadsInside,  // a thread is inside a call of the device and will look at this worker when it comes out
  };
  /// After stop(): waits for threads, then for queues, each as long as a device may be still before it counts as hung.
  /// One that does is not asked for anything.
  Ending end(bool hung);
  /// To be asked every `seconds`, by one thread: why the device counts as hung, if it does. `waited`: of Stillness.
  absl::Status look_for_hang(double seconds, double waited);
  /// Seconds for which work of the device stood still when it was asked.
  double still_seconds() const { return std::ranges::max(stillness_, {}, &Stillness::seconds).seconds(); }
  /// Chunks that were sent twice because they arrived changed.
  std::uint64_t repeated_transfers() const;

  Bytes peak_bytes() const { return device_.peak_bytes(); }
  DeviceTrace* trace() { return trace_.get(); }
  void clear_trace() {
    if (trace_ != nullptr) trace_->clear();
  }

 private:
  static constexpr std::uint32_t kNoBuffer = ~std::uint32_t{0};
  /// Where weights and gradients lie for a stage, whose slots share it: some schedules have a slot for each microbatch.
  struct StagePlaces {
    /// By weight buffer: views of the layers' weights, [layer - first][parameter].
    std::array<std::vector<std::vector<devices::BufferView>>, 2> weights;
    /// [layer - first]: parameters in the order in which their weights lie there and travel, frozen ones first.
    std::vector<std::vector<std::size_t>> travel;
    /// By gradient buffer; from entry groups_room_ on, by job: the home's own sums (unified devices, group 0).
    std::vector<std::vector<std::vector<devices::BufferView>>> gradients;
    /// Likewise: trained parameters and where their sum lies.
    struct Sent {
      model::ParameterUse use;
      devices::BufferView view;
      partition::LayerIndex layer = 0;
    };
    std::vector<std::vector<Sent>> sent;  // layers in rising order
    std::vector<bool> resident;           // by layer - first: its weights stay on the device
    std::size_t number = 0;               // of the stages that compute gradients
  };
  struct SlotState {
    std::uint32_t index = 0;  // in the plan
    partition::Slot slot;
    partition::WorkspaceLayout layout;
    std::vector<partition::PublishedBoundary> published;
    std::vector<ChainLink> train_chain;
    std::vector<ChainLink> evaluate_chain;
    std::shared_ptr<const StagePlaces> stage;
    /// [layer - first]: links of the chain of gradients behind the last that adds to the layer's sums.
    std::vector<std::uint64_t> links_behind;
    Bytes left_at = 0;  // where its place is in left_
    bool computes_gradients = false;
    bool writes_rows = false;
    bool adds_rows = false;
  };
  struct Retirement {
    StepJob* job = nullptr;
    const SlotState* slot = nullptr;
    std::uint32_t microbatch = 0;  // of the step
    std::uint32_t round_microbatch = 0;
    std::uint64_t round = 0;
    std::uint64_t value = 0;  // of the compute timeline
    std::uint32_t parity = 0;
    std::uint32_t bucket = 0;
    bool ends_visit = false;
    bool repeated = false;  // was retired by the lost device: only its gradients are wanted
    std::chrono::steady_clock::time_point fed;
  };
  struct GradientErrand {
    StepJob* job = nullptr;
    const SlotState* slot = nullptr;
    std::uint32_t group = 0;
    std::uint32_t buffer = 0;
    std::uint64_t value = 0;
  };
  /// One microbatch as it is to be fed.
  struct Errand {
    StepJob* job = nullptr;
    std::uint32_t microbatch = 0;
    std::uint32_t gradient_buffer = 0;
    bool ends_visit = false;
    bool repeated = false;
  };
  /// Boundaries that a microbatch reads, held in memory from hold() on.
  struct Inputs {
    std::optional<offload::BoundaryPlace> activation;
    std::optional<offload::BoundaryPlace> gradient;
    void let_go(offload::ActivationStore& store) const {
      if (activation) store.let_go(*activation);
      if (gradient) store.let_go(*gradient);
    }
  };
  /// Makes boundaries readable as they arrive, on the engine's thread.
  class Publisher final : public transfer::TransferListener {
   public:
    explicit Publisher(SharedState& shared) : shared_(shared) {}
    void on_transfer(std::uint64_t cookie, const absl::Status& status) override {
      if (status.ok()) shared_.boundaries->publish(targets[cookie]);
    }
    std::vector<offload::BoundaryPlace> targets;  // by output of the microbatch that retires

   private:
    SharedState& shared_;
  };
  enum class Share : std::uint8_t { kAll, kFrozen, kTrained };
  /// Which weights are to come.
  struct Wanted {
    std::uint64_t version = 0;
    devices::WorkTag tag;
    Share share = Share::kAll;
  };
  /// The visit that comes next if the next job is like the last one.
  struct Ahead {
    const SlotState* slot = nullptr;  // null: none is expected
    std::uint64_t version = 0;        // of the job before
    std::uint32_t step = 0;
    std::size_t layers = 0;  // whose frozen weights are there
  };
  /// Inputs of a microbatch on their way to the device.
  struct Arrival {
    std::array<transfer::Ticket, 4> tickets;
    std::array<devices::Point, 4> points;  // reached when they are there; used: count_points
    std::size_t count_points = 0;
  };

  Worker(SharedState& shared, Assignment assignment);
  absl::Status prepare();
  void join();
  absl::Status prepare_links();
  absl::Status allocate();
  std::vector<partition::LayerIndex> resident_layers() const;
  void set_bounds();
  bool queues_are_empty();
  bool threads_have_left(bool hung);
  std::chrono::steady_clock::time_point end_of_patience() const;
  absl::Status prepare_slot(std::uint32_t slot_index);
  absl::StatusOr<std::shared_ptr<const StagePlaces>> place_stage(const SlotState& state);
  absl::Status place_weights(const partition::Slot& slot, StagePlaces& places);
  void place_gradients(const partition::Slot& slot, StagePlaces& places);
  static void count_links(SlotState& state);
  absl::Status compile(const SlotState& state);

  void feed_loop();
  void prefetch_loop();
  void retire_loop();
  void gradient_loop();

  absl::Status feed_visit(StepJob& job, SlotState& slot);
  absl::Status feed_group(StepJob& job, SlotState& slot, std::uint32_t first, std::uint32_t end, std::uint32_t last);
  absl::Status feed_microbatch(SlotState& slot, const Errand& errand);
  absl::Status reserve_outputs(SlotState& slot, const Errand& errand, std::uint32_t parity, VisitMemory& memory);
  void clear_gradients(const StepJob& job, const SlotState& slot, std::uint32_t buffer);
  absl::Status enqueue_chain(SlotState& slot, const Errand& errand, std::uint64_t fed, VisitMemory& memory,
                             Arrival& arrival);
  bool is_done(const StepJob& job, const SlotState& slot, std::uint32_t microbatch) const;
  std::uint32_t last_to_feed(const StepJob& job, const SlotState& slot) const;
  absl::Status send_inputs(const SlotState& slot, const Errand& errand, std::uint32_t parity, VisitMemory& memory,
                           Arrival& arrival);
  absl::Status follow_inputs(const StepJob& job, const SlotState& slot, const ChainLink& first, Arrival& arrival);
  absl::Status land(Arrival& arrival);
  void let_go_of_inputs();
  bool weights_are_ready(std::size_t layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Inputs inputs_of(const StepJob& job, const SlotState& slot, std::uint32_t microbatch) const;
  offload::ReadOrder read_order(const StepJob& job, const partition::BoundaryReaders& readers,
                                std::uint32_t round_microbatch) const;
  absl::Status wait_for_weights(const StepJob& job, const SlotState& slot, std::size_t layer);
  /// Whether a layer's weights are at home in the job's version.
  bool are_published(const StepJob& job, model::LayerIndex layer) const;
  absl::Status prefetch_job(const StepJob& job);
  absl::Status prefetch_visit(const StepJob& job, const SlotState& slot, std::size_t layers_there);
  bool may_go_ahead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status go_ahead();
  absl::Status wait_for_readers(model::LayerIndex layer);
  absl::Status submit_weights(const Wanted& what, const SlotState& slot, std::size_t place, std::size_t buffer,
                              transfer::Ticket& last);
  absl::Status retire(const Retirement& item);
  absl::Status publish_outputs(const Retirement& item);
  absl::Status take_rows(const Retirement& item);
  absl::StatusOr<transfer::Ticket> submit(transfer::Direction direction, const transfer::Transfer& transfer);
  absl::Status come_out_of_device();
  absl::Status bring_down(devices::BufferView from, devices::BufferView to, transfer::Urgency urgency,
                          const devices::WorkTag& tag);
  devices::BufferView home_of(const GradientErrand& errand, const StagePlaces::Sent& sent) const;
  absl::StatusOr<std::size_t> bring_run_down(const GradientErrand& errand, std::size_t first, std::size_t end);
  absl::Status bring_layer_home(const GradientErrand& errand, std::size_t first, std::size_t end);
  absl::Status bring_gradients_home(const GradientErrand& errand);
  absl::StatusOr<std::uint32_t> take_gradient_buffer(const StepJob& job, std::uint32_t group);
  absl::StatusOr<std::uint32_t> borrow_gradient_buffer();
  bool has_room_for_group() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::uint32_t free_gradient_buffer() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool runs_in_job(const StepJob& job, const SlotState& slot) const;
  static std::size_t layers_of(const SlotState& slot) { return slot.slot.last_layer - slot.slot.first_layer + 1; }
  partition::Round round_of(const StepJob& job, const SlotState& slot) const {
    return round_in_job(shared_, job, slot.slot);
  }
  static bool gives_gradients(const StepJob& job, const SlotState& slot) {
    return slot.computes_gradients && !job.evaluate;
  }
  offload::BoundaryPlace place(const StepJob& job, offload::BoundaryKind kind, const SlotState& slot, std::uint32_t cut,
                               std::uint32_t microbatch) const;
  void end_visit_if_done(const StepJob& job, std::uint32_t slot);
  static devices::WorkTag tag(const char* name, const StepJob& job, const SlotState& slot, std::uint32_t microbatch);
  /// The device is to blame for `status`, unless it is OK or the worker was stopped.
  absl::Status blame(absl::Status status);
  /// How a thread leaves that met an error.
  void leave(const absl::Status& status);
  /// Calls `wait` with short deadlines until it ends otherwise or the worker is stopped.
  template <typename Wait>
  absl::Status in_slices(Wait wait) const;

  /// Whose waits the mutex guards: the worker's four threads', and those of who gives it work or ends it.
  enum class Waiter : std::uint8_t { kFeeding, kPrefetching, kRetiring, kGradients, kOutside };
  CondVar& changed(Waiter waiter) { return changed_[static_cast<std::size_t>(waiter)]; }
  void notify(std::initializer_list<Waiter> waiters) {
    for (const Waiter waiter : waiters) changed(waiter).notify_all();
  }
  /// Blocks while `condition` is false and nobody failed. False after a failure or stop.
  template <typename Condition>
  bool wait_for(Waiter waiter, Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Errors: ResourceExhausted; the threads before it run on until stop().
  absl::Status start(void (Worker::*body)());
  void run_loop(void (Worker::*body)());

  SharedState& shared_;
  const ExecutorParts& parts_;
  const partition::Plan& plan_;
  const Assignment assignment_;
  devices::Device& device_;
  const bool unified_;
  const bool weights_in_place_;  // programs read them at home
  /// The device sets gradients, and no slot leaves some of a microbatch for later: its first one need not clear them.
  const bool sets_gradients_;
  ProgramCache programs_;
  transfer::EngineOptions link_;
  std::unique_ptr<transfer::TransferEngine> engine_;
  std::unique_ptr<devices::Timeline> compute_;
  std::array<std::unique_ptr<devices::Timeline>, 3> ends_;  // by queue role: reached when it holds nothing of ours
  bool asked_ = false;                                      // the queues, to reach ends_
  std::unique_ptr<DeviceTrace> trace_;
  std::vector<SlotState> slots_;

  // Device memory.
  std::vector<devices::Buffer> resident_;  // by layer: weights that stay
  std::array<devices::Buffer, 2> weights_;
  std::array<devices::Buffer, 4> inputs_;  // activation and gradient by parity
  std::vector<devices::Buffer> outputs_;   // parity * cuts + cut
  std::array<devices::Buffer, 2> batches_;
  std::vector<devices::Buffer> gradients_;
  devices::Buffer workspace_;
  devices::Buffer left_;  // what microbatches leave to their weight gradients, by place
  // Host memory.
  std::array<devices::Buffer, 2> losses_;  // 8 bytes each
  devices::Buffer gradient_staging_;       // groups past the first, of devices that are not unified
  devices::Buffer row_staging_;
  std::array<std::vector<devices::Bindings>, 2> bindings_;
  std::array<VisitMemory, 2> memory_;
  std::size_t most_cuts_ = 0;
  Bytes left_bytes_ = 0;                    // of a place
  std::vector<std::uint32_t> left_places_;  // by slot of the plan
  std::uint32_t groups_room_ = 2;           // reduction groups whose sums may be here at a time
  std::uint64_t compute_value_ = 0;         // only the feeding thread's
  const SlotState* slot_before_ = nullptr;  // likewise: of the last microbatch
  bool clear_before_gradients_ = false;     // likewise: a group has begun
  std::vector<std::uint32_t> growing_;      // likewise, by stage: buffer with the sums of the group under way
  // Only the prefetching thread's:
  std::vector<std::uint64_t> held_;     // by layer: 1 + version of its weights in resident_
  std::vector<std::uint64_t> read_by_;  // by layer: 1 + the last visit that reads them there
  Ahead ahead_;
  // Only the retiring thread's:
  std::chrono::steady_clock::time_point retired_last_;
  std::vector<transfer::Ticket> leaving_;  // by output
  Publisher publisher_;

  // Read where the mutex may not be taken; acquire and release, since what it ends looks at other state after it.
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> blamed_ = false;                 // likewise
  std::atomic<std::uint64_t> compute_enqueued_ = 0;  // relaxed: a hint for look_for_hang()
  Patience patience_;
  std::array<Stillness, 3> stillness_;  // by queue role; only for look_for_hang()

  Mutex mutex_;
  std::array<CondVar, 5> changed_;  // by Waiter: a thread is woken only for what it may wait for
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t threads_running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t threads_in_device_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  /// Of the microbatch that is being fed. Who stops the worker may let them go while the device holds its thread.
  Inputs held_inputs_ ABSL_GUARDED_BY(mutex_);
  std::array<StepJob*, kMostJobs> job_ring_ ABSL_GUARDED_BY(mutex_) = {};
  /// Counts at which a job is done, once it is fed.
  struct JobEnd {
    std::uint64_t microbatches = 0;
    std::uint64_t errands = 0;
  };
  std::array<JobEnd, kMostJobs> job_ends_ ABSL_GUARDED_BY(mutex_) = {};
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
  std::vector<GradientErrand> errands_ ABSL_GUARDED_BY(mutex_);  // a ring
  std::uint32_t groups_taken_ ABSL_GUARDED_BY(mutex_) = 0;       // begun and not yet home
  std::vector<bool> gradient_buffers_taken_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace rondo::schedule
