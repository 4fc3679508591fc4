// The four threads of a worker.
#include <algorithm>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/schedule/shape.h"
#include "worker.h"

namespace rondo::schedule {
namespace {

using Clock = std::chrono::steady_clock;
using offload::BoundaryKind;
using partition::SlotPhase;
using transfer::Direction;
using transfer::Urgency;

absl::Status stopped() { return absl::CancelledError("the run was stopped"); }

}  // namespace

template <typename Condition>
bool Worker::wait_for(Condition condition) {
  while (!stopping_ && !condition()) changed_.wait(mutex_);
  return !stopping_;
}

void Worker::run_loop(void (Worker::*body)()) { (this->*body)(); }

Clock::time_point Worker::deadline() const {
  const double seconds = std::max(600.0, 20.0 * parts_.plan->predicted.step_seconds);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

devices::WorkTag Worker::tag(const char* name, const SlotState& slot, std::uint32_t microbatch) const {
  return {name, shared_.job.step, slot.index, microbatch};
}

partition::Round Worker::round_of(const SlotState& slot) const {
  partition::Round round = parts_.plan->rounds[slot.slot.round];
  const std::uint32_t end = std::min(round.first_microbatch + round.microbatches, shared_.job.microbatches);
  round.microbatches = end > round.first_microbatch ? end - round.first_microbatch : 0;
  return round;
}

bool Worker::runs_in_job(const SlotState& slot) const {
  if (round_of(slot).microbatches == 0) return false;
  return !(shared_.job.evaluate ? slot.evaluate_chain : slot.train_chain).empty();
}

offload::BoundaryPlace Worker::place(BoundaryKind kind, const SlotState& slot, std::uint32_t cut,
                                     std::uint32_t microbatch) const {
  return {kind, shared_.job.first_round + slot.slot.round, cut, microbatch - round_of(slot).first_microbatch};
}

// Feeding.

void Worker::feed_loop() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (!wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_fed_ < jobs_; })) return;
    }
    for (SlotState& slot : slots_) {
      if (!runs_in_job(slot)) continue;
      const absl::Status status = feed_visit(slot);
      if (!status.ok()) return shared_.fail(with_context(status, device_.caps().name));
    }
    const MutexLock lock(mutex_);
    ++jobs_fed_;
    changed_.notify_all();
  }
}

absl::Status Worker::feed_visit(SlotState& slot) {
  const partition::Round round = round_of(slot);
  const std::uint32_t end = round.first_microbatch + round.microbatches;
  if (shared_.job.evaluate || !slot.computes_gradients) {
    for (std::uint32_t m = round.first_microbatch; m < end; ++m) {
      RONDO_RETURN_IF_ERROR(feed_microbatch(slot, m, 0, m + 1 == end));
    }
  } else {
    const std::uint32_t size = parts_.work.reduction_group;
    for (std::uint32_t first = round.first_microbatch; first < end; first += size) {
      RONDO_RETURN_IF_ERROR(feed_group(slot, first, std::min(first + size, end), first / size));
    }
  }
  const MutexLock lock(mutex_);
  ++visits_fed_;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::uint32_t> Worker::take_gradient_buffer(std::uint32_t group) {
  std::uint32_t buffer = 2;
  {
    const MutexLock lock(mutex_);
    if (!wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return errands_done_ + 1 >= errands_given_; })) {
      return stopped();
    }
    if (!unified_ || group > 0) buffer = static_cast<std::uint32_t>(errands_given_ % 2);
  }
  clear_before_gradients_ = true;
  return buffer;
}

absl::Status Worker::feed_group(SlotState& slot, std::uint32_t first, std::uint32_t end, std::uint32_t group) {
  RONDO_ASSIGN_OR_RETURN(const std::uint32_t buffer, take_gradient_buffer(group));
  const partition::Round round = round_of(slot);
  for (std::uint32_t m = first; m < end; ++m) {
    RONDO_RETURN_IF_ERROR(feed_microbatch(slot, m, buffer, m + 1 == round.first_microbatch + round.microbatches));
  }
  const MutexLock lock(mutex_);
  errands_[errands_given_ % errands_.size()] = {&slot, group, buffer, compute_value_};
  ++errands_given_;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status Worker::wait_for_weights(const SlotState& slot, std::size_t layer) {
  if (unified_) {
    for (const model::ParameterId id : parts_.model->layers()[slot.slot.first_layer + layer].parameters) {
      if (!parts_.model->parameters()[id].trained) continue;
      RONDO_RETURN_IF_ERROR(parts_.parameters->wait_for_version(id, shared_.job.version, deadline()));
    }
    return absl::OkStatus();
  }
  const MutexLock lock(mutex_);
  const bool ready = wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return visits_prefetched_ > visits_fed_ || (visits_prefetched_ == visits_fed_ && layers_ready_ > layer);
  });
  return ready ? absl::OkStatus() : stopped();
}

absl::Status Worker::bring_inputs(const SlotState& slot, std::uint32_t microbatch, std::uint32_t parity,
                                  VisitMemory& memory) {
  const std::uint32_t bucket = shared_.job.buckets[microbatch];
  const Bytes boundary = parts_.model->boundary_bytes(bucket);
  const bool from_below = slot.slot.first_layer > 0;
  const bool from_above = slot.slot.phase == SlotPhase::kBackward;
  const auto activation = place(BoundaryKind::kActivation, slot, slot.slot.first_layer, microbatch);
  const auto gradient = place(BoundaryKind::kGradient, slot, slot.slot.last_layer + 1, microbatch);
  if (from_below) RONDO_RETURN_IF_ERROR(shared_.boundaries->wait_until_available(activation, deadline()));
  if (from_above) RONDO_RETURN_IF_ERROR(shared_.boundaries->wait_until_available(gradient, deadline()));
  const devices::BufferView batch = shared_.job.batches[microbatch];
  if (unified_) {
    if (from_below) memory.input_activation = shared_.boundaries->view(activation, boundary);
    if (from_above) memory.input_gradient = shared_.boundaries->view(gradient, boundary);
    memory.batch = batch;
    return absl::OkStatus();
  }
  std::array<transfer::Ticket, 3> tickets;
  const auto send = [&](std::size_t which, devices::BufferView from, devices::BufferView to) {
    tickets[which] = engine_->submit(
        Direction::kUp, {from, to, Urgency::kActivation, tag("activations", slot, microbatch), nullptr, 0});
  };
  memory.batch = batches_[parity].view().part(0, batch.size);
  send(0, batch, memory.batch);
  if (from_below) {
    memory.input_activation = inputs_[parity * 2].view().part(0, boundary);
    send(1, shared_.boundaries->view(activation, boundary), memory.input_activation);
  }
  if (from_above) {
    memory.input_gradient = inputs_[parity * 2 + 1].view().part(0, boundary);
    send(2, shared_.boundaries->view(gradient, boundary), memory.input_gradient);
  }
  for (const transfer::Ticket ticket : tickets)
    RONDO_RETURN_IF_ERROR(engine_->wait(Direction::kUp, ticket, deadline()));
  return absl::OkStatus();
}

absl::Status Worker::feed_microbatch(SlotState& slot, std::uint32_t microbatch, std::uint32_t gradient_buffer,
                                     bool ends_visit) {
  std::uint64_t fed = 0;
  std::uint64_t visit = 0;
  {
    const MutexLock lock(mutex_);
    if (!wait_for(
            [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return microbatches_retired_ + 1 >= microbatches_fed_; })) {
      return stopped();
    }
    // Rows of a lookup table lie in the workspace until they are retired, and another slot lays the workspace out
    // otherwise.
    const bool rows_in_the_way = slot_before_ != nullptr && slot_before_ != &slot && slot_before_->writes_rows;
    if (rows_in_the_way &&
        !wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return microbatches_retired_ >= microbatches_fed_; })) {
      return stopped();
    }
    slot_before_ = &slot;
    fed = microbatches_fed_;
    visit = visits_fed_;
  }
  const auto parity = static_cast<std::uint32_t>(fed % 2);
  const std::uint32_t bucket = shared_.job.buckets[microbatch];
  const Bytes boundary = parts_.model->boundary_bytes(bucket);
  VisitMemory& memory = memory_[parity];
  const bool sends = slot.slot.phase == SlotPhase::kForward || !shared_.job.evaluate;
  const BoundaryKind kind =
      slot.slot.phase == SlotPhase::kForward ? BoundaryKind::kActivation : BoundaryKind::kGradient;
  memory.outputs.resize(slot.cuts.size());
  for (std::size_t i = 0; sends && i < slot.cuts.size(); ++i) {
    const auto target = place(kind, slot, slot.cuts[i], microbatch);
    RONDO_RETURN_IF_ERROR(shared_.boundaries->reserve(target, deadline()));
    memory.outputs[i] = unified_ ? shared_.boundaries->view(target, boundary)
                                 : outputs_[parity * most_cuts_ + i].view().part(0, boundary);
  }
  RONDO_RETURN_IF_ERROR(bring_inputs(slot, microbatch, parity, memory));
  memory.workspace = workspace_.view();
  memory.loss =
      unified_ ? losses_[parity].view() : memory.batch.part(BatchLayout(bucket).loss_offset(), sizeof(double));
  memory.weights = &slot.weights[unified_ ? 0 : visit % 2];
  memory.gradients = &slot.gradients[gradient_buffer];

  const std::vector<ChainLink>& chain = shared_.job.evaluate ? slot.evaluate_chain : slot.train_chain;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const ChainLink& link = chain[i];
    if (link.layer >= slot.slot.first_layer) {
      RONDO_RETURN_IF_ERROR(wait_for_weights(slot, link.layer - slot.slot.first_layer));
    }
    if (link.writes_rows) {  // the rows of the microbatch before must have left the workspace
      const MutexLock lock(mutex_);
      if (!wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return microbatches_retired_ >= fed; }))
        return stopped();
    }
    if (clear_before_gradients_ && link.phase != model::Phase::kForward) {
      // Not sooner: the sums may be the home's own, which the optimizer reads until all of the slot's layers are
      // updated, and that the forward links before have waited for.
      for (const auto& [id, view] : slot.sent[gradient_buffer]) {
        device_.queue(devices::QueueRole::kCompute)
            .clear(view, {}, {compute_.get(), ++compute_value_}, tag("clear", slot, 0));
      }
      clear_before_gradients_ = false;
    }
    const devices::Program& program = programs_.get(link.layer, link.phase, link.keep, bucket);
    devices::Bindings& bindings = bindings_[parity][i];
    bind(link, program, slot.slot, slot.layout, memory, bucket, bindings);
    device_.queue(devices::QueueRole::kCompute)
        .run(program, bindings, {}, {compute_.get(), ++compute_value_},
             tag(name_of(slot.slot.phase), slot, microbatch));
  }
  const MutexLock lock(mutex_);
  const partition::Round round = round_of(slot);
  retirements_[fed % retirements_.size()] = {&slot,
                                             microbatch,
                                             microbatch - round.first_microbatch,
                                             shared_.job.first_round + slot.slot.round,
                                             compute_value_,
                                             parity,
                                             bucket,
                                             ends_visit};
  ++microbatches_fed_;
  changed_.notify_all();
  return absl::OkStatus();
}

// Weights.

void Worker::prefetch_loop() {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (!wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_prefetched_ < jobs_; })) return;
    }
    for (const SlotState& slot : slots_) {
      if (!runs_in_job(slot)) continue;
      const absl::Status status = prefetch_visit(slot);
      if (!status.ok()) return shared_.fail(with_context(status, device_.caps().name));
    }
    const MutexLock lock(mutex_);
    ++jobs_prefetched_;
    changed_.notify_all();
  }
}

/// Hands in what must come of a layer's weights: all, or of a layer that stays what it does not hold in this version.
/// All visits that read the version before have retired: updates come after the commit point.
absl::Status Worker::submit_weights(const SlotState& slot, std::size_t place, std::size_t buffer,
                                    transfer::Ticket& last) {
  const model::LayerIndex layer = slot.slot.first_layer + static_cast<model::LayerIndex>(place);
  const std::uint64_t held = slot.resident[place] ? held_[layer] : 0;
  const std::uint64_t wanted = shared_.job.version + 1;
  const auto& ids = parts_.model->layers()[layer].parameters;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    const bool trained = parts_.model->parameters()[ids[p]].trained;
    if (trained ? held == wanted : held != 0) continue;
    if (trained) {
      RONDO_RETURN_IF_ERROR(parts_.parameters->wait_for_version(ids[p], shared_.job.version, deadline()));
    }
    last = engine_->submit(Direction::kUp, {parts_.parameters->published(ids[p]), slot.weights[buffer][place][p],
                                            Urgency::kWeight, tag("weights", slot, 0), nullptr, 0});
  }
  if (slot.resident[place]) held_[layer] = wanted;
  return absl::OkStatus();
}

absl::Status Worker::prefetch_visit(const SlotState& slot) {
  std::uint64_t visit = 0;
  {
    const MutexLock lock(mutex_);
    visit = visits_prefetched_;
    if (!wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return visits_retired_ + 1 >= visit; }))
      return stopped();
  }
  const std::size_t layers = slot.slot.last_layer - slot.slot.first_layer + 1;
  // A layer is handed in before the one before it is waited for, so that the link stays busy.
  transfer::Ticket before;
  for (std::size_t i = 0; i <= layers; ++i) {
    transfer::Ticket last = before;
    if (i < layers) RONDO_RETURN_IF_ERROR(submit_weights(slot, i, visit % 2, last));
    if (i > 0) {
      // First come, first served within an urgency: the last piece of a layer ends after its others.
      RONDO_RETURN_IF_ERROR(engine_->wait(Direction::kUp, before, deadline()));
      const MutexLock lock(mutex_);
      layers_ready_ = i;
      changed_.notify_all();
    }
    before = last;
  }
  const MutexLock lock(mutex_);
  ++visits_prefetched_;
  layers_ready_ = 0;
  changed_.notify_all();
  return absl::OkStatus();
}

// Retiring.

void Worker::retire_loop() {
  for (;;) {
    Retirement item;
    {
      const MutexLock lock(mutex_);
      if (!wait_for([&]()
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return microbatches_retired_ < microbatches_fed_; })) {
        return;
      }
      item = retirements_[microbatches_retired_ % retirements_.size()];
    }
    const absl::Status status = retire(item);
    if (!status.ok()) return shared_.fail(with_context(status, device_.caps().name));
    const MutexLock lock(mutex_);
    ++microbatches_retired_;
    if (item.ends_visit) ++visits_retired_;
    changed_.notify_all();
  }
}

absl::Status Worker::retire(const Retirement& item) {
  RONDO_RETURN_IF_ERROR(compute_->wait(item.value, deadline()));
  const SlotState& slot = *item.slot;
  const bool evaluate = shared_.job.evaluate;
  const VisitMemory& memory = memory_[item.parity];
  const Bytes boundary = parts_.model->boundary_bytes(item.bucket);
  const bool forward = slot.slot.phase == SlotPhase::kForward;
  const BoundaryKind kind = forward ? BoundaryKind::kActivation : BoundaryKind::kGradient;
  for (std::size_t i = 0; (forward || !evaluate) && i < slot.cuts.size(); ++i) {
    const offload::BoundaryPlace target{kind, item.round, slot.cuts[i], item.round_microbatch};
    if (!unified_) {
      const transfer::Ticket ticket = engine_->submit(
          Direction::kDown, {memory.outputs[i], shared_.boundaries->view(target, boundary), Urgency::kActivation,
                             tag("activations", slot, item.microbatch), nullptr, 0});
      RONDO_RETURN_IF_ERROR(engine_->wait(Direction::kDown, ticket, deadline()));
    }
    shared_.boundaries->publish(target);
  }
  if (slot.slot.phase == SlotPhase::kFused) {
    if (!unified_) {
      const transfer::Ticket ticket =
          engine_->submit(Direction::kDown, {memory.loss, losses_[item.parity].view(), Urgency::kActivation,
                                             tag("loss", slot, item.microbatch), nullptr, 0});
      RONDO_RETURN_IF_ERROR(engine_->wait(Direction::kDown, ticket, deadline()));
    }
    std::memcpy(&shared_.job.losses[item.microbatch], losses_[item.parity].view().host(), sizeof(double));
  }
  if (slot.writes_rows && !evaluate) {
    const model::ParameterId table = parts_.model->layers()[0].parameters[0];
    const auto width = static_cast<std::uint64_t>(parts_.model->config().hidden_size);
    RowViews rows = row_views(slot.layout, memory.workspace, item.bucket, width);
    if (!unified_) {
      const Bytes ids_size = round_up(rows.ids.size, 64);
      const devices::BufferView staged_ids = row_staging_.view().part(0, rows.ids.size);
      const devices::BufferView staged_rows = row_staging_.view().part(ids_size, rows.rows.size);
      for (const auto& [from, to] : {std::pair(rows.ids, staged_ids), std::pair(rows.rows, staged_rows)}) {
        const transfer::Ticket ticket = engine_->submit(
            Direction::kDown, {from, to, Urgency::kGradient, tag("gradients", slot, item.microbatch), nullptr, 0});
        RONDO_RETURN_IF_ERROR(engine_->wait(Direction::kDown, ticket, deadline()));
      }
      rows = {staged_ids, staged_rows};
    }
    RONDO_RETURN_IF_ERROR(shared_.gradients->add_rows(table, item.microbatch, rows.ids, rows.rows));
  }
  if (item.ends_visit) release_inputs(slot);
  return absl::OkStatus();
}

bool Worker::reads_activation_last(const SlotState& slot) const {
  if (slot.slot.phase != SlotPhase::kForward || shared_.job.evaluate) return true;
  return std::ranges::none_of(parts_.plan->slots, [&](const partition::Slot& other) {
    return other.phase == SlotPhase::kBackward && other.round == slot.slot.round &&
           other.first_layer == slot.slot.first_layer;
  });
}

/// At the end of the visit, not before: until then another device could have to run it again. In evaluation the
/// checkpoints of backward slots are released by nobody else, so the forward slot that published them does.
void Worker::release_inputs(const SlotState& slot) {
  const partition::Round round = round_of(slot);
  for (std::uint32_t m = round.first_microbatch; m < round.first_microbatch + round.microbatches; ++m) {
    if (slot.slot.first_layer > 0 && reads_activation_last(slot)) {
      shared_.boundaries->release(place(BoundaryKind::kActivation, slot, slot.slot.first_layer, m));
    }
    if (slot.slot.phase == SlotPhase::kBackward) {
      shared_.boundaries->release(place(BoundaryKind::kGradient, slot, slot.slot.last_layer + 1, m));
    }
    for (const partition::LayerIndex cut : slot.cuts) {
      if (shared_.job.evaluate && slot.slot.phase == SlotPhase::kForward && cut <= slot.slot.last_layer) {
        shared_.boundaries->release(place(BoundaryKind::kActivation, slot, cut, m));
      }
    }
  }
}

// Gradients.

void Worker::gradient_loop() {
  for (;;) {
    GradientErrand errand;
    {
      const MutexLock lock(mutex_);
      if (!wait_for([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return errands_done_ < errands_given_; })) return;
      errand = errands_[errands_done_ % errands_.size()];
    }
    const absl::Status status = bring_gradients_home(errand);
    if (!status.ok()) return shared_.fail(with_context(status, device_.caps().name));
    const MutexLock lock(mutex_);
    ++errands_done_;
    changed_.notify_all();
  }
}

absl::Status Worker::bring_gradients_home(const GradientErrand& errand) {
  RONDO_RETURN_IF_ERROR(compute_->wait(errand.value, deadline()));
  const auto& sent = errand.slot->sent[errand.buffer];
  Bytes offset = 0;
  for (const auto& [id, view] : sent) {
    devices::BufferView at_home = view;
    if (!unified_) {
      at_home = errand.group == 0 ? shared_.gradients->sum(id) : gradient_staging_.view().part(offset, view.size);
      offset += round_up(view.size, partition::kAlignment);
      const transfer::Ticket ticket = engine_->submit(
          Direction::kDown,
          {view, at_home, Urgency::kGradient, tag("gradients", *errand.slot, errand.group), nullptr, 0});
      RONDO_RETURN_IF_ERROR(engine_->wait(Direction::kDown, ticket, deadline()));
    }
    if (errand.group == 0) {
      shared_.gradients->complete_first(id);
    } else {
      RONDO_RETURN_IF_ERROR(shared_.gradients->add(id, errand.group, at_home));
    }
  }
  return absl::OkStatus();
}

}  // namespace rondo::schedule
