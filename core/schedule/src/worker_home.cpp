// The threads that take home what the device has done: retiring and gradients.
#include <algorithm>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/schedule/shape.h"
#include "transfer_run.h"
#include "worker.h"
#include "worker_waits.h"

namespace rondo::schedule {
namespace {

using Clock = std::chrono::steady_clock;
using offload::BoundaryKind;
using partition::SlotPhase;
using transfer::Direction;
using transfer::Urgency;

/// Row ids come from the device: before they are used as indexes they are checked.
absl::Status check_rows(devices::BufferView ids, std::uint32_t bucket, std::uint64_t rows) {
  const auto* list = reinterpret_cast<const std::int32_t*>(ids.host());
  if (list == nullptr) return absl::OkStatus();
  const auto most = static_cast<std::int32_t>(bucket);
  bool good = list[0] >= 0 && list[0] <= most;
  for (std::int32_t i = 1; good && i <= list[0]; ++i) {
    good = list[i] >= 0 && static_cast<std::uint64_t>(list[i]) < rows && (i == 1 || list[i] > list[i - 1]);
  }
  if (good) return absl::OkStatus();
  return absl::DataLossError("the row ids of the lookup table's gradient came back as no list of rising ids");
}

/// A backward slot's inputs are needed until its group is home, which is after its weight gradients too.
bool reads_activation_last(const SharedState& shared, const StepJob& job, const partition::Slot& slot) {
  if (!partition::reads_activation(slot)) return false;
  if (slot.phase != SlotPhase::kForward || job.evaluate) return true;
  return std::ranges::none_of(shared.plan->slots, [&](const partition::Slot& other) {
    return other.phase == SlotPhase::kBackward && other.round == slot.round && other.first_layer == slot.first_layer;
  });
}

}  // namespace

partition::Round round_in_job(const SharedState& shared, const StepJob& job, const partition::Slot& slot) {
  return round_within(shared.plan->rounds[slot.round], job.microbatches);
}

void release_inputs(const SharedState& shared, const StepJob& job, std::uint32_t index, std::uint32_t first,
                    std::uint32_t end) {
  const partition::Slot& slot = shared.plan->slots[index];
  const partition::Round round = round_in_job(shared, job, slot);
  const bool forward = slot.phase == SlotPhase::kForward;
  const auto release = [&](BoundaryKind kind, std::uint32_t cut, std::uint32_t m) {
    shared.boundaries->release({kind, job.first_round + slot.round, cut, m - round.first_microbatch});
  };
  for (std::uint32_t m = first; m < end; ++m) {
    if (!job.ledger->done(index, m)) continue;
    if (reads_activation_last(shared, job, slot)) {
      release(BoundaryKind::kActivation, slot.first_layer, m);
    }
    if (slot.phase == SlotPhase::kBackward) release(BoundaryKind::kGradient, slot.last_layer + 1, m);
    if (!job.evaluate || !forward) continue;
    for (const partition::LayerIndex cut : partition::published_cuts(slot, shared.plan->slots)) {
      if (cut <= slot.last_layer) release(BoundaryKind::kActivation, cut, m);
    }
  }
}

void release_inputs(const SharedState& shared, const StepJob& job, std::uint32_t index) {
  const partition::Round round = round_in_job(shared, job, shared.plan->slots[index]);
  release_inputs(shared, job, index, round.first_microbatch, round.first_microbatch + round.microbatches);
}

/// Whatever a lost device has left.
void Worker::end_visit_if_done(const StepJob& job, std::uint32_t slot) {
  if (job.ledger->end_visit(slot)) release_inputs(shared_, job, slot);
}

absl::Status Worker::blame(absl::Status status) {
  if (!status.ok() && !stopped_.load(std::memory_order_acquire)) blamed_.store(true, std::memory_order_release);
  return status;
}

void Worker::leave(const absl::Status& status) {
  if (stopped_.load(std::memory_order_acquire)) return;
  const absl::Status named = with_context(status, device_.caps().name);
  if (blamed_.load(std::memory_order_acquire)) return shared_.lose(assignment_.device, named);
  shared_.fail(named);
}

void Worker::run_loop(void (Worker::*body)()) {
  (this->*body)();
  const MutexLock lock(mutex_);
  --threads_running_;
  notify({Waiter::kOutside});
}

// Retiring.

void Worker::retire_loop() {
  for (;;) {
    Retirement item;
    {
      const MutexLock lock(mutex_);
      if (!wait_for(Waiter::kRetiring, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            return microbatches_retired_ < microbatches_fed_;
          })) {
        return;
      }
      item = retirements_[microbatches_retired_ % retirements_.size()];
    }
    const absl::Status status = retire(item);
    if (!status.ok()) return leave(status);
    const MutexLock lock(mutex_);
    ++microbatches_retired_;
    notify({Waiter::kFeeding, Waiter::kOutside});
    if (!item.ends_visit) continue;
    patience_.tell_visits(++visits_retired_);
    notify({Waiter::kPrefetching});
  }
}

/// The engine may call the device.
absl::StatusOr<transfer::Ticket> Worker::submit(Direction direction, const transfer::Transfer& transfer) {
  {
    const MutexLock lock(mutex_);
    ++threads_in_device_;
  }
  const transfer::Ticket ticket = engine_->submit(direction, transfer);
  RONDO_RETURN_IF_ERROR(come_out_of_device());
  return ticket;
}

/// An error: the worker was stopped meanwhile, and nothing that is shared may be touched again.
absl::Status Worker::come_out_of_device() {
  const MutexLock lock(mutex_);
  --threads_in_device_;
  if (!stopping_) return absl::OkStatus();
  notify({Waiter::kOutside});
  return stopped_error();
}

absl::Status Worker::bring_down(devices::BufferView from, devices::BufferView to, Urgency urgency,
                                const devices::WorkTag& tag) {
  RONDO_ASSIGN_OR_RETURN(const transfer::Ticket ticket, submit(Direction::kDown, {from, to, urgency, tag, nullptr, 0}));
  return blame(engine_->wait(Direction::kDown, ticket, kNoDeadline));
}

absl::Status Worker::retire(const Retirement& item) {
  RONDO_RETURN_IF_ERROR(blame(compute_->wait(item.value, kNoDeadline)));
  const Clock::time_point now = Clock::now();
  patience_.tell(std::chrono::duration<double>(now - std::max(item.fed, retired_last_)).count());
  retired_last_ = now;
  if (unified_) inputs_of(*item.job, *item.slot, item.microbatch).let_go(*shared_.boundaries);
  if (item.repeated) return absl::OkStatus();
  StepJob& job = *item.job;
  const SlotState& slot = *item.slot;
  RONDO_RETURN_IF_ERROR(publish_outputs(item));
  if (slot.slot.phase == SlotPhase::kFused) {
    const devices::BufferView loss = losses_[item.parity].view();
    if (!unified_) {
      RONDO_RETURN_IF_ERROR(
          bring_down(memory_[item.parity].loss, loss, Urgency::kActivation, tag("loss", job, slot, item.microbatch)));
    }
    std::memcpy(&job.losses[item.microbatch], loss.host(), sizeof(double));
  }
  if (slot.writes_rows && !job.evaluate && !job.ledger->rows_added(item.microbatch)) {
    RONDO_RETURN_IF_ERROR(take_rows(item));
  }
  job.ledger->set_retired(slot.index, item.microbatch);
  release_inputs(shared_, job, slot.index, item.microbatch, item.microbatch + 1);
  end_visit_if_done(job, slot.index);
  return absl::OkStatus();
}

absl::Status Worker::publish_outputs(const Retirement& item) {
  const StepJob& job = *item.job;
  const SlotState& slot = *item.slot;
  const bool forward = slot.slot.phase == SlotPhase::kForward;
  if (!forward && job.evaluate) return absl::OkStatus();
  const BoundaryKind kind = forward ? BoundaryKind::kActivation : BoundaryKind::kGradient;
  const Bytes boundary = parts_.model->boundary_bytes(item.bucket);
  for (std::size_t i = 0; i < slot.published.size(); ++i) {
    const offload::BoundaryPlace target{kind, item.round, slot.published[i].cut, item.round_microbatch};
    leaving_[i] = {};
    if (assignment_.taken_over && shared_.boundaries->was_published(target)) continue;
    if (unified_) {
      shared_.boundaries->publish(target);
      continue;
    }
    publisher_.targets[i] = target;
    const devices::BufferView home = shared_.boundaries->view(target, boundary);
    RONDO_ASSIGN_OR_RETURN(leaving_[i],
                           submit(Direction::kDown, {memory_[item.parity].outputs[i], home, Urgency::kActivation,
                                                     tag("activations", job, slot, item.microbatch), &publisher_, i}));
  }
  for (std::size_t i = 0; !unified_ && i < slot.published.size(); ++i) {
    RONDO_RETURN_IF_ERROR(blame(engine_->wait(Direction::kDown, leaving_[i], kNoDeadline)));
  }
  return absl::OkStatus();
}

absl::Status Worker::take_rows(const Retirement& item) {
  const StepJob& job = *item.job;
  const SlotState& slot = *item.slot;
  const model::ParameterId table = parts_.model->layers()[0].parameters[0].id;
  const auto width = static_cast<std::uint64_t>(parts_.model->config().hidden_size);
  RowViews rows = row_views(slot.layout, memory_[item.parity].workspace, item.bucket, width);
  if (!unified_) {
    const Bytes ids_size = round_up(rows.ids.size, 64);
    const devices::BufferView staged_ids = row_staging_.view().part(0, rows.ids.size);
    const devices::BufferView staged_rows = row_staging_.view().part(ids_size, rows.rows.size);
    for (const auto& [from, to] : {std::pair(rows.ids, staged_ids), std::pair(rows.rows, staged_rows)}) {
      RONDO_RETURN_IF_ERROR(bring_down(from, to, Urgency::kGradient, tag("gradients", job, slot, item.microbatch)));
    }
    rows = {staged_ids, staged_rows};
  }
  RONDO_RETURN_IF_ERROR(
      blame(check_rows(rows.ids, item.bucket, static_cast<std::uint64_t>(parts_.model->config().vocab_size))));
  if (!job.ledger->wait_for_rows_turn(item.microbatch, stopped_)) return stopped_error();
  RONDO_RETURN_IF_ERROR(job.gradients->add_rows(table, item.microbatch, rows.ids, rows.rows));
  job.ledger->set_rows_added();
  return absl::OkStatus();
}

// Gradients.

void Worker::gradient_loop() {
  for (;;) {
    GradientErrand errand;
    {
      const MutexLock lock(mutex_);
      if (!wait_for(Waiter::kGradients,
                    [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return errands_done_ < errands_given_; }))
        return;
      errand = errands_[errands_done_ % errands_.size()];
    }
    const absl::Status status = bring_gradients_home(errand);
    if (!status.ok()) return leave(status);
    const MutexLock lock(mutex_);
    ++errands_done_;
    --groups_taken_;
    if (errand.buffer < groups_room_) gradient_buffers_taken_[errand.buffer] = false;
    notify({Waiter::kFeeding, Waiter::kOutside});
  }
}

/// Where the sum is brought: to the group's place before it is added, but the first group's to where all are added.
devices::BufferView Worker::home_of(const GradientErrand& errand, const StagePlaces::Sent& sent) const {
  if (errand.group == 0) return rows_of(*parts_.model, sent.use, errand.job->gradients->sum(sent.use.id));
  return gradient_staging_.view().part(sent.view.offset, sent.view.size);
}

/// The sum of `first` and of those behind it, before `end`, that can travel with it. Gives the first that did not.
absl::StatusOr<std::size_t> Worker::bring_run_down(const GradientErrand& errand, std::size_t first, std::size_t end) {
  const StepJob& job = *errand.job;
  const std::vector<StagePlaces::Sent>& sent = errand.slot->stage->sent[errand.buffer];
  transfer::Transfer run;
  std::size_t next = first;
  for (; next < end; ++next) {
    const devices::BufferView home = home_of(errand, sent[next]);
    const bool added = job.ledger->added(sent[next].use.contribution, errand.group);
    if (next > first && (added || !travels_with(run, sent[next].view, home))) break;
    take_along(run, sent[next].view, home);
  }
  const std::uint32_t microbatch = errand.group * parts_.work.reduction_group;
  RONDO_RETURN_IF_ERROR(
      bring_down(run.from, run.to, Urgency::kGradient, tag("gradients", job, *errand.slot, microbatch)));
  return next;
}

/// The sums of one layer: [first, end) of what is sent.
absl::Status Worker::bring_layer_home(const GradientErrand& errand, std::size_t first, std::size_t end) {
  const StepJob& job = *errand.job;
  const std::vector<StagePlaces::Sent>& sent = errand.slot->stage->sent[errand.buffer];
  const partition::LayerIndex layer = sent[first].layer - errand.slot->slot.first_layer;
  RONDO_RETURN_IF_ERROR(blame(compute_->wait(errand.value - errand.slot->links_behind[layer], kNoDeadline)));
  std::size_t down = first;  // of `sent`: up to where they are home
  for (std::size_t s = first; s < end; ++s) {
    const model::ParameterUse& use = sent[s].use;
    const devices::BufferView view = sent[s].view;
    if (job.ledger->added(use.contribution, errand.group)) continue;  // by the lost device
    const devices::BufferView at_home = unified_ ? view : home_of(errand, sent[s]);
    if (!unified_) {
      if (s >= down) {
        RONDO_ASSIGN_OR_RETURN(down, bring_run_down(errand, s, end));
      }
    } else if (errand.group == 0 && assignment_.taken_over) {
      std::memcpy(rows_of(*parts_.model, use, job.gradients->sum(use.id)).host(), view.host(), view.size);
    }
    if (!job.ledger->wait_for_turn(use.contribution, errand.group, stopped_)) return stopped_error();
    if (errand.group == 0) {
      job.gradients->complete_first(use.id, use.piece);
    } else {
      const std::uint64_t row = parts_.model->parameters()[use.id].elements() /
                                static_cast<std::uint64_t>(parts_.model->parameters()[use.id].shape[0]);
      RONDO_RETURN_IF_ERROR(job.gradients->add(use.id, errand.group, at_home,
                                               {use.piece, static_cast<std::uint64_t>(use.first_row) * row}));
    }
    job.ledger->set_added(use.contribution);
  }
  return absl::OkStatus();
}

/// Layer by layer, the last one first, each as soon as the last microbatch has come back past it.
absl::Status Worker::bring_gradients_home(const GradientErrand& errand) {
  const StepJob& job = *errand.job;
  const SlotState& slot = *errand.slot;
  const std::vector<StagePlaces::Sent>& sent = slot.stage->sent[errand.buffer];
  // What the device holds is updated where it is.
  for (std::size_t end = shared_.card_state == nullptr ? sent.size() : 0; end > 0;) {
    std::size_t first = end - 1;
    while (first > 0 && sent[first - 1].layer == sent[end - 1].layer) --first;
    RONDO_RETURN_IF_ERROR(bring_layer_home(errand, first, end));
    end = first;
  }
  RONDO_RETURN_IF_ERROR(blame(compute_->wait(errand.value, kNoDeadline)));
  job.ledger->set_home(slot.index, errand.group);
  const std::uint32_t size = parts_.work.reduction_group;
  for (const std::uint32_t index : job.ledger->sharing(slot.index)) {
    const partition::Round round = round_in_job(shared_, job, plan_.slots[index]);
    release_inputs(shared_, job, index, std::max(errand.group * size, round.first_microbatch),
                   std::min((errand.group + 1) * size, round.first_microbatch + round.microbatches));
    end_visit_if_done(job, index);
  }
  return absl::OkStatus();
}

}  // namespace rondo::schedule
