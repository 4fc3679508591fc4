#include "crew.h"

#include <algorithm>
#include <cassert>
#include <set>

#include "card_state.h"
#include "processor_waits.h"
#include "rondo/base/status.h"
#include "rondo/base/thread.h"
#include "rondo/partition/layout.h"

namespace rondo::schedule {
namespace {

using Clock = std::chrono::steady_clock;
using partition::DeviceIndex;
using partition::SlotPhase;

/// Keeps what a hung device may still use until the program ends; in reach of a pointer, so that leak checkers know.
template <typename Kept>
void set_aside(std::unique_ptr<Kept> kept) {
  static Mutex mutex;
  static auto* const all = new std::vector<std::unique_ptr<Kept>>();
  const MutexLock lock(mutex);
  all->push_back(std::move(kept));
}

/// By round of a step: what it fills.
std::vector<std::vector<offload::BoundaryPlace>> fills(const partition::ModelShape& model,
                                                       const partition::Plan& plan) {
  std::vector<std::vector<offload::BoundaryPlace>> fills(plan.rounds.size());
  for (const partition::Slot& slot : plan.slots) {
    const auto kind =
        slot.phase == SlotPhase::kForward ? offload::BoundaryKind::kActivation : offload::BoundaryKind::kGradient;
    for (const partition::PublishedBoundary& published : partition::published_boundaries(model, slot, plan.slots)) {
      fills[slot.round].push_back({kind, slot.round, published.cut});
    }
  }
  return fills;
}

}  // namespace

Crew::Crew(const ExecutorParts& executor_parts, const partition::Plan& given, const std::vector<bool>& lost,
           const Homes& homes)
    : own_parts_(executor_parts), own_plan_(given), lost_before_(lost) {
  parts = &own_parts_;
  plan = &own_plan_;
  const std::size_t microbatches = own_parts_.work.microbatches;
  for (std::uint32_t i = 0; i < kMostJobs; ++i) {
    ledgers_[i] =
        std::make_unique<Ledger>(own_plan_, own_parts_.work.reduction_group, own_parts_.model->contributions());
    jobs[i].which = i;
    jobs[i].ledger = ledgers_[i].get();
    jobs[i].gradients = homes[i];
    jobs[i].batches.resize(microbatches);
    jobs[i].buckets.resize(microbatches);
    jobs[i].losses.resize(microbatches);
  }
}

absl::StatusOr<std::unique_ptr<Crew>> Crew::make(const ExecutorParts& parts, const partition::Plan& plan,
                                                 const std::vector<bool>& lost, const Homes& homes) {
  auto crew = std::unique_ptr<Crew>(new Crew(parts, plan, lost, homes));
  const absl::Status status = crew->prepare();
  if (status.ok()) return crew;
  dismiss(std::move(crew));
  return status;
}

absl::Status Crew::prepare() {
  const partition::BoundaryLayout layout =
      partition::layout_boundaries(*own_parts_.shape, own_plan_.slots, own_plan_.rounds, own_parts_.work.staleness);
  offload::ActivationStoreOptions options;
  options.activation_cuts = layout.activation_cuts;
  options.gradient_cuts = layout.gradient_cuts;
  options.microbatches = layout.microbatches;
  options.boundary_bytes = own_parts_.work.boundary_bytes;
  options.phantom = own_parts_.parameters->phantom();
  options.rounds = layout.rounds;
  options.buffers = own_plan_.boundary_buffers;
  options.disk_folder = own_parts_.disk_folder;
  options.disk_bandwidth = own_parts_.host.disk_bandwidth;
  options.fills = fills(*own_parts_.shape, own_plan_);
  RONDO_ASSIGN_OR_RETURN(own_boundaries_, offload::ActivationStore::make(options));
  boundaries = own_boundaries_.get();
  if (own_parts_.shape->holds_state) {
    devices::Device& device = *own_parts_.devices.front().device;
    absl::StatusOr<std::unique_ptr<CardState>> state = CardState::make(own_parts_, device);
    if (!state.ok()) return with_context(state.status(), device.caps().name);
    own_state_ = *std::move(state);
    card_state = own_state_.get();
  }
  microbatches_.resize(own_plan_.rounds.size());
  const bool trains = own_parts_.model->first_backward_layer() < own_parts_.model->layers().size();
  for (const partition::Slot& slot : own_plan_.slots) {
    with_gradients_.push_back(trains && slot.phase != SlotPhase::kForward);
  }
  no_gradients_.resize(with_gradients_.size());
  for (DeviceIndex device = 0; device < own_parts_.devices.size(); ++device) {
    Assignment assignment{device, {}, false};
    for (std::uint32_t i = 0; i < own_plan_.slots.size(); ++i) {
      if (own_plan_.slots[i].device == device) assignment.slots.push_back(i);
    }
    if (assignment.slots.empty()) continue;
    RONDO_ASSIGN_OR_RETURN(auto worker, Worker::make(*this, std::move(assignment)));
    const MutexLock lock(mutex_);
    workers_.push_back(std::move(worker));
  }
  RONDO_ASSIGN_OR_RETURN(watch_, start_thread("the watch over devices", [this] { watch(); }));
  return absl::OkStatus();
}

Crew::~Crew() = default;

void Crew::dismiss(std::unique_ptr<Crew> crew) {
  if (crew != nullptr && !crew->end()) set_aside(std::move(crew));
}

bool Crew::end() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (watch_.joinable()) watch_.join();
  if (own_boundaries_ != nullptr) own_boundaries_->fail(absl::CancelledError("the run has ended"));
  for (Worker* worker : workers()) worker->stop(absl::CancelledError("the run has ended"));
  bool free = true;
  for (Worker* worker : workers()) {
    bool hung = false;
    {
      const MutexLock lock(mutex_);
      for (const Loss& loss : losses_) hung = hung || (loss.hung && loss.device == worker->assignment().device);
    }
    switch (worker->end(hung)) {
      case Worker::Ending::kFree:
        break;
      case Worker::Ending::kMemoryInUse: {
        const MutexLock lock(mutex_);
        set_aside(std::move(*std::ranges::find(workers_, worker, &std::unique_ptr<Worker>::get)));
        set_aside(std::move(own_state_));
        std::erase(workers_, nullptr);
        break;
      }
      case Worker::Ending::kThreadsInside:
        free = false;
        break;
    }
  }
  // What is set aside may stay for long, but nothing on disk.
  if (own_boundaries_ != nullptr) own_boundaries_->close();
  return free;
}

// Losses.

bool Crew::is_lost(DeviceIndex device) const {
  return std::ranges::any_of(losses_, [&](const Loss& loss) { return loss.device == device; });
}

bool Crew::spent() const {
  const MutexLock lock(mutex_);
  return !losses_.empty() || !error_.ok();
}

std::vector<Loss> Crew::losses() const {
  const MutexLock lock(mutex_);
  return losses_;
}

absl::Status Crew::bring_state_home() {
  if (own_state_ == nullptr || own_state_->at_home()) return absl::OkStatus();
  const std::string& name = own_parts_.devices.front().device->caps().name;
  const std::string gone = fmt::format("what was trained since the last checkpoint was on {}", name);
  const std::vector<Loss> lost = losses();
  if (!lost.empty()) return absl::Status(lost.front().why.code(), gone);
  return with_context(own_state_->bring_home(), gone);
}

std::vector<std::string> Crew::take_notes() {
  const MutexLock lock(mutex_);
  return std::exchange(notes_, {});
}

std::uint64_t Crew::retries() const {
  const MutexLock lock(mutex_);
  std::uint64_t count = slots_taken_over_;
  for (const auto& worker : workers_) count += worker->repeated_transfers();
  return count;
}

std::vector<Worker*> Crew::workers() const {
  const MutexLock lock(mutex_);
  std::vector<Worker*> all;
  for (const auto& worker : workers_) all.push_back(worker.get());
  return all;
}

void Crew::fail(const absl::Status& error) {
  {
    const MutexLock lock(mutex_);
    if (error_.ok()) error_ = error;
  }
  own_boundaries_->fail(error);
  for (Worker* worker : workers()) worker->stop(absl::CancelledError("the run was stopped"));
}

void Crew::lose(DeviceIndex device, const absl::Status& why) {
  if (!own_parts_.recovery.enabled()) return fail(why);
  const MutexLock lock(mutex_);
  note_loss({device, why, false});
}

void Crew::note_loss(const Loss& loss) {
  if (ending_ || !error_.ok() || is_lost(loss.device)) return;
  losses_.push_back(loss);
  interrupted_.store(true, std::memory_order_release);
  for (const auto& worker : workers_) {
    if (worker->assignment().device == loss.device) {
      worker->stop(loss.why);
    } else {
      worker->wake();
    }
  }
}

/// Ticks; finds devices that hang.
void Crew::watch() {
  const double seconds = std::min(0.5, own_parts_.recovery.hang_seconds / 20);
  const auto tick = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const double suspicious = own_parts_.recovery.hang_seconds / 10;
  ProcessorWaits waits;
  absl::Status fatal;
  {
    const MutexLock lock(mutex_);
    while (!ending_ && fatal.ok()) {
      if (changed_.wait_until(mutex_, Clock::now() + tick)) continue;
      double waited = 0;
      if (std::ranges::any_of(workers_, [=](const auto& worker) { return worker->still_seconds() >= suspicious; })) {
        waited = waits.since_last();
      } else {
        waits.forget();
      }
      // By index: the thread that runs jobs may add workers while a loss is noted.
      for (std::size_t i = 0; i < workers_.size(); ++i) {
        const DeviceIndex device = workers_[i]->assignment().device;
        if (is_lost(device)) continue;
        const absl::Status found = workers_[i]->look_for_hang(seconds, waited);
        if (found.ok()) continue;
        if (own_parts_.recovery.enabled()) {
          note_loss({device, found, true});
        } else {
          losses_.push_back({device, found, true});
          fatal = found;
        }
      }
    }
  }
  if (!fatal.ok()) fail(fatal);
}

// Jobs.

std::optional<Loss> Crew::next_loss() {
  const MutexLock lock(mutex_);
  if (losses_handled_ < losses_.size()) return losses_[losses_handled_++];
  interrupted_.store(false, std::memory_order_release);
  return std::nullopt;
}

void Crew::begin(std::uint32_t which) {
  StepJob& job = jobs[which];
  job.ledger->begin(job.microbatches, job.evaluate ? no_gradients_ : with_gradients_);
  for (std::size_t i = 0; i < microbatches_.size(); ++i) {
    microbatches_[i] = round_within(own_plan_.rounds[i], job.microbatches).microbatches;
  }
  boundaries->begin(job.first_round, microbatches_, !job.evaluate);
  under_way_[count_under_way_++] = which;
  // By index, and without the list of workers(): a step allocates nothing.
  for (std::size_t i = 0; Worker* worker = worker_at(i); ++i) worker->begin(job);
}

absl::Status Crew::finish() {
  assert(count_under_way_ > 0);  // who waits for a job that was not begun waits for ever
  for (;;) {
    if (const std::optional<Loss> loss = next_loss()) {
      const absl::Status status = take_over(*loss);
      if (status.ok()) continue;
      fail(status);
      for (Worker* worker : workers()) worker->wait_until_still();
      note_others();
      return status;
    }
    for (std::size_t i = 0; Worker* worker = worker_at(i); ++i)
      worker->wait_until_done(count_under_way_ - 1, interrupted_);
    const MutexLock lock(mutex_);
    if (!error_.ok()) return error_;
    if (losses_handled_ < losses_.size()) continue;
    std::rotate(under_way_.begin(), under_way_.begin() + 1, under_way_.end());
    --count_under_way_;
    return absl::OkStatus();
  }
}

Worker* Crew::worker_at(std::size_t i) const {
  const MutexLock lock(mutex_);
  return i < workers_.size() ? workers_[i].get() : nullptr;
}

std::string Crew::describe(const Loss& loss) const {
  const std::string& name = own_parts_.devices[loss.device].device->caps().name;
  std::string why = message_of(loss.why);
  while (why.starts_with(name + ": ")) why.erase(0, name.size() + 2);  // devices and workers both name it
  return fmt::format("{} is lost ({})", name, why);
}

void Crew::note_others() {
  while (const std::optional<Loss> loss = next_loss()) {
    const MutexLock lock(mutex_);
    notes_.push_back(describe(*loss));
  }
}

absl::Status Crew::take_over(const Loss& loss) {
  for (Worker* worker : workers()) {
    if (worker->assignment().device != loss.device) continue;
    // What a queue has begun to copy is still read: once the step is done, the optimizer writes there.
    if (loss.hung) {
      worker->wait_until_still();
    } else {
      worker->wait_until_unused();
    }
  }
  {
    const MutexLock lock(mutex_);
    if (!error_.ok()) return error_;
  }
  const std::string lost = describe(loss);
  const std::vector<std::uint32_t> slots = unfinished_slots(loss.device);
  std::string note = lost;
  absl::Status status;
  if (count_under_way_ > 1) {
    note += "; the steps under way are repeated";
    status = absl::AbortedError(lost);
  } else if (!slots.empty()) {
    if (const std::optional<DeviceIndex> taker = assign(slots)) {
      note += fmt::format("; {} unfinished {} run again on {}", slots.size(), slots.size() == 1 ? "slot" : "slots",
                          own_parts_.devices[*taker].device->caps().name);
    } else if (others().empty()) {
      status = absl::AbortedError(lost);
    } else {
      note += "; no other device has the memory to take over, the step is repeated";
      status = absl::AbortedError(lost);
    }
  }
  const MutexLock lock(mutex_);
  notes_.push_back(std::move(note));
  if (status.ok()) slots_taken_over_ += slots.size();
  return status;
}

std::vector<std::uint32_t> Crew::unfinished_slots(DeviceIndex device) {
  std::set<std::uint32_t> found;
  const StepJob& job = jobs[under_way_[0]];
  for (const Worker* worker : workers()) {
    if (worker->assignment().device != device) continue;
    for (const std::uint32_t i : worker->assignment().slots) {
      const partition::Slot& slot = own_plan_.slots[i];
      const bool runs =
          job.evaluate ? partition::goes_forward(slot) : slot.phase == SlotPhase::kForward || with_gradients_[i];
      if (!runs || job.ledger->ended(i)) continue;
      // All done but for saying so.
      if (job.ledger->end_visit(i)) {
        release_inputs(*this, job, i);
      } else {
        found.insert(i);
      }
    }
  }
  return {found.begin(), found.end()};
}

/// Devices that are left, those with slots of the plan and the fastest first.
std::vector<DeviceIndex> Crew::others() const {
  std::vector<DeviceIndex> left;
  {
    const MutexLock lock(mutex_);
    for (DeviceIndex i = 0; i < own_parts_.devices.size(); ++i) {
      if (!is_lost(i) && !lost_before_[i]) left.push_back(i);
    }
  }
  const auto rank = [&](DeviceIndex i) {
    const bool used =
        std::ranges::any_of(own_plan_.slots, [&](const partition::Slot& slot) { return slot.device == i; });
    return std::pair(!used, -own_parts_.devices[i].profile.speed(own_parts_.work.dtype));
  };
  std::ranges::stable_sort(left, [&](DeviceIndex a, DeviceIndex b) { return rank(a) < rank(b); });
  return left;
}

std::optional<DeviceIndex> Crew::assign(const std::vector<std::uint32_t>& slots) {
  for (const DeviceIndex device : others()) {
    auto made = Worker::make(*this, {device, slots, true});
    if (!made.ok()) continue;  // for want of memory or threads; the step is repeated when no device has it
    Worker* worker = made->get();
    {
      const MutexLock lock(mutex_);
      workers_.push_back(*std::move(made));
      // The device may have been lost meanwhile, or the job have ended.
      if (!error_.ok() || is_lost(device)) worker->stop(absl::CancelledError("the run was stopped"));
    }
    worker->begin(jobs[under_way_[0]]);
    return device;
  }
  return std::nullopt;
}

// Traces.

std::vector<DeviceTrace*> Crew::traces() const {
  std::vector<DeviceTrace*> traces;
  for (Worker* worker : workers()) {
    if (worker->trace() != nullptr) traces.push_back(worker->trace());
  }
  return traces;
}

double Crew::compute_seconds(DeviceIndex device) const {
  double seconds = 0;
  for (std::size_t i = 0; Worker* worker = worker_at(i); ++i) {
    if (worker->assignment().device == device && worker->trace() != nullptr) {
      seconds += worker->trace()->compute_seconds();
    }
  }
  return seconds;
}

void Crew::clear_traces() {
  for (Worker* worker : workers()) worker->clear_trace();
}

}  // namespace rondo::schedule
