// The workers that carry out one plan, the boundaries between them, and what happens when a device of theirs is lost.
//
// One thread runs jobs; lose() and fail() come from the workers' threads, the watch or the user. Lock order: the crew's
// mutex, then a worker's, then a link's or a timeline's.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker.h"

namespace rondo::schedule {

/// A device that was lost while a crew was at work.
struct Loss {
  partition::DeviceIndex device = 0;
  absl::Status why;
  bool hung = false;
};

class Crew final : public SharedState {
 public:
  /// Where gradients go, by job: as many as jobs may be under way.
  using Homes = std::array<offload::GradientHome*, kMostJobs>;
  /// `parts` and `plan` are copied; what they name outlives the crew. Errors: ResourceExhausted, Unimplemented, as the
  /// devices say. `lost`: by device, before this crew.
  static absl::StatusOr<std::unique_ptr<Crew>> make(const ExecutorParts& parts, const partition::Plan& plan,
                                                    const std::vector<bool>& lost, const Homes& homes);
  /// What a lost device may still use is set aside: it stays allocated until the program ends.
  static void dismiss(std::unique_ptr<Crew> crew);
  ~Crew();

  /// Begins the job that stands in jobs[which]. REQUIRES: fewer under way than there are homes.
  void begin(std::uint32_t which);
  /// Ends the job that was begun first. OK: it is complete, though devices may have been lost. Aborted: devices were
  /// lost and none of the others can take over; no job is under way any more. Other errors: that of fail().
  /// REQUIRES: one is under way.
  absl::Status finish();
  /// A device is lost, a job has failed or was repeated: this crew must not run another.
  bool spent() const;
  std::vector<Loss> losses() const;
  /// Takes what the device holds back to the parameters, if it holds any and is not lost. REQUIRES: no job is under
  /// way, or has failed.
  absl::Status bring_state_home();
  /// Losses that nobody takes over any more are told all the same. REQUIRES: no job is under way, or has failed.
  void note_others();
  /// One of each loss, for people: what was taken over, "its 3 unfinished slots go to cpu:0".
  std::vector<std::string> take_notes();
  /// Slots taken over and transfers repeated.
  std::uint64_t retries() const;

  void fail(const absl::Status& error) override;
  void lose(partition::DeviceIndex device, const absl::Status& why) override;

  std::vector<DeviceTrace*> traces() const;
  /// Of a device since this crew was made; 0 without traces.
  double compute_seconds(partition::DeviceIndex device) const;
  void clear_traces();

 private:
  Crew(const ExecutorParts& executor_parts, const partition::Plan& given, const std::vector<bool>& lost,
       const Homes& homes);
  absl::Status prepare();
  void note_loss(const Loss& loss) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool is_lost(partition::DeviceIndex device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Worker*> workers() const;
  /// Null past the last.
  Worker* worker_at(std::size_t i) const;
  std::optional<Loss> next_loss();
  std::string describe(const Loss& loss) const;
  absl::Status take_over(const Loss& loss);
  std::vector<std::uint32_t> unfinished_slots(partition::DeviceIndex device);
  /// The device that does them from now on; none: they fit no other.
  std::optional<partition::DeviceIndex> assign(const std::vector<std::uint32_t>& slots);
  std::vector<partition::DeviceIndex> others() const;
  void watch();
  /// Ends everything; true when all of it may be freed. Workers that may not are set aside.
  bool end();

  const ExecutorParts own_parts_;
  const partition::Plan own_plan_;
  const std::vector<bool> lost_before_;                     // by device
  std::array<std::unique_ptr<Ledger>, kMostJobs> ledgers_;  // by job
  // Only the thread that runs jobs: which of them are under way, the oldest first.
  std::array<std::uint32_t, kMostJobs> under_way_ = {};
  std::uint32_t count_under_way_ = 0;
  std::unique_ptr<offload::ActivationStore> own_boundaries_;
  std::unique_ptr<CardState> own_state_;
  std::vector<bool> with_gradients_;         // by slot, in training
  std::vector<bool> no_gradients_;           // likewise, in evaluation
  std::vector<std::uint32_t> microbatches_;  // by round, of the step that begins

  std::atomic<bool> interrupted_ = false;  // release and acquire: a loss was noted before
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Worker>> workers_ ABSL_GUARDED_BY(mutex_);  // only the thread that runs jobs adds any
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<Loss> losses_ ABSL_GUARDED_BY(mutex_);
  std::size_t losses_handled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t slots_taken_over_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;
};

}  // namespace rondo::schedule
