// The threads that give the device its work: feeding and prefetching.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "card_state.h"
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

}  // namespace

devices::WorkTag Worker::tag(const char* name, const StepJob& job, const SlotState& slot, std::uint32_t microbatch) {
  return {name, job.step, slot.index, microbatch};
}

bool Worker::runs_in_job(const StepJob& job, const SlotState& slot) const {
  if (round_of(job, slot).microbatches == 0) return false;
  return !(job.evaluate ? slot.evaluate_chain : slot.train_chain).empty();
}

offload::BoundaryPlace Worker::place(const StepJob& job, BoundaryKind kind, const SlotState& slot, std::uint32_t cut,
                                     std::uint32_t microbatch) const {
  return {kind, job.first_round + slot.slot.round, cut, microbatch - round_of(job, slot).first_microbatch};
}

// Feeding.

void Worker::feed_loop() {
  for (;;) {
    StepJob* job = nullptr;
    {
      const MutexLock lock(mutex_);
      if (!wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_fed_ < jobs_; }))
        return;
      job = job_ring_[jobs_fed_ % kMostJobs];
    }
    for (SlotState& slot : slots_) {
      if (!runs_in_job(*job, slot)) continue;
      const absl::Status status = feed_visit(*job, slot);
      if (!status.ok()) return leave(status);
    }
    const MutexLock lock(mutex_);
    job_ends_[jobs_fed_ % kMostJobs] = {microbatches_fed_, errands_given_};
    ++jobs_fed_;
    notify({Waiter::kOutside});
  }
}

/// Of a slot that was taken over: nothing is left to do for a microbatch. Its gradients are only whole with the others
/// of its group.
bool Worker::is_done(const StepJob& job, const SlotState& slot, std::uint32_t microbatch) const {
  if (!assignment_.taken_over) return false;
  if (gives_gradients(job, slot) && !job.ledger->home(slot.index, microbatch / parts_.work.reduction_group))
    return false;
  return job.ledger->retired(slot.index, microbatch);
}

std::uint32_t Worker::last_to_feed(const StepJob& job, const SlotState& slot) const {
  const partition::Round round = round_of(job, slot);
  std::uint32_t last = round.first_microbatch + round.microbatches - 1;
  while (last > round.first_microbatch && is_done(job, slot, last)) --last;
  return last;
}

absl::Status Worker::feed_visit(StepJob& job, SlotState& slot) {
  const partition::Round round = round_of(job, slot);
  const std::uint32_t end = round.first_microbatch + round.microbatches;
  // What is done changes while it is fed, but for what is fed already.
  const std::uint32_t last = last_to_feed(job, slot);
  const std::uint32_t size = parts_.work.reduction_group;
  std::uint32_t group_end = end;
  for (std::uint32_t first = round.first_microbatch; first < end; first = group_end) {
    if (gives_gradients(job, slot)) group_end = std::min((first / size + 1) * size, end);
    if (gives_gradients(job, slot) && !(assignment_.taken_over && job.ledger->home(slot.index, first / size))) {
      RONDO_RETURN_IF_ERROR(feed_group(job, slot, first, group_end, last));
      continue;
    }
    for (std::uint32_t m = first; m < group_end; ++m) {
      if (is_done(job, slot, m)) continue;
      std::uint32_t buffer = 0;
      if (gives_gradients(job, slot)) {
        // They are home already, but computed on the way: not where those of another group are, or may still be read.
        RONDO_ASSIGN_OR_RETURN(buffer, borrow_gradient_buffer());
      }
      RONDO_RETURN_IF_ERROR(feed_microbatch(slot, {&job, m, buffer, m == last, false}));
    }
  }
  const MutexLock lock(mutex_);
  ++visits_fed_;
  return absl::OkStatus();
}

bool Worker::has_room_for_group() const { return groups_taken_ < groups_room_; }

/// REQUIRES: has_room_for_group().
std::uint32_t Worker::free_gradient_buffer() const {
  return static_cast<std::uint32_t>(std::ranges::find(gradient_buffers_taken_, false) -
                                    gradient_buffers_taken_.begin());
}

/// Where a group's sums grow until they are home. Of a unified device the first group's are at home from the start.
absl::StatusOr<std::uint32_t> Worker::take_gradient_buffer(const StepJob& job, std::uint32_t group) {
  auto buffer = static_cast<std::uint32_t>(groups_room_ + job.which);
  {
    const MutexLock lock(mutex_);
    if (!wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_room_for_group(); })) {
      return stopped_error();
    }
    ++groups_taken_;
    if (!unified_ || group > 0 || assignment_.taken_over) {
      buffer = free_gradient_buffer();
      gradient_buffers_taken_[buffer] = true;
    }
  }
  clear_before_gradients_ = true;
  return buffer;
}

/// For what nobody will read, until the next group begins.
absl::StatusOr<std::uint32_t> Worker::borrow_gradient_buffer() {
  clear_before_gradients_ = true;
  const MutexLock lock(mutex_);
  if (!wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_room_for_group(); })) {
    return stopped_error();
  }
  return free_gradient_buffer();
}

/// Microbatches [first, end) of the step, all or a part of a reduction group.
absl::Status Worker::feed_group(StepJob& job, SlotState& slot, std::uint32_t first, std::uint32_t end,
                                std::uint32_t last) {
  const std::uint32_t group = first / parts_.work.reduction_group;
  std::uint32_t& growing = growing_[slot.stage->number];
  if (growing == kNoBuffer) {
    RONDO_ASSIGN_OR_RETURN(growing, take_gradient_buffer(job, group));
  }
  for (std::uint32_t m = first; m < end; ++m) {
    const bool repeated = assignment_.taken_over && job.ledger->retired(slot.index, m);
    RONDO_RETURN_IF_ERROR(feed_microbatch(slot, {&job, m, growing, m == last, repeated}));
  }
  const bool complete = partition::completes_group(end, parts_.work.reduction_group, job.microbatches);
  if (!complete || slot.slot.defers_weights) return absl::OkStatus();
  const std::uint32_t buffer = std::exchange(growing, kNoBuffer);
  const MutexLock lock(mutex_);
  errands_[errands_given_ % errands_.size()] = {&job, &slot, group, buffer, compute_value_};
  ++errands_given_;
  notify({Waiter::kGradients});
  return absl::OkStatus();
}

bool Worker::weights_are_ready(std::size_t layer) const {
  return visits_prefetched_ > visits_fed_ || (visits_prefetched_ == visits_fed_ && layers_ready_ > layer);
}

absl::Status Worker::wait_for_weights(const StepJob& job, const SlotState& slot, std::size_t layer) {
  if (weights_in_place_) {
    for (const model::ParameterUse& use : parts_.model->layers()[slot.slot.first_layer + layer].parameters) {
      const model::ParameterId id = use.id;
      if (!parts_.model->parameters()[id].trained) continue;
      RONDO_RETURN_IF_ERROR(in_slices(
          [&](Clock::time_point until) { return parts_.parameters->wait_for_version(id, job.version, until); }));
    }
    return absl::OkStatus();
  }
  const MutexLock lock(mutex_);
  const bool ready =
      wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return weights_are_ready(layer); });
  return ready ? absl::OkStatus() : stopped_error();
}

bool Worker::are_published(const StepJob& job, model::LayerIndex layer) const {
  return std::ranges::all_of(parts_.model->layers()[layer].parameters, [&](const model::ParameterUse& use) {
    return !parts_.model->parameters()[use.id].trained || parts_.parameters->version(use.id) >= job.version;
  });
}

Worker::Inputs Worker::inputs_of(const StepJob& job, const SlotState& slot, std::uint32_t microbatch) const {
  Inputs inputs;
  if (partition::reads_activation(slot.slot)) {
    inputs.activation = place(job, BoundaryKind::kActivation, slot, slot.slot.first_layer, microbatch);
  }
  if (partition::reads_gradient(*parts_.shape, slot.slot)) {
    inputs.gradient = place(job, BoundaryKind::kGradient, slot, slot.slot.last_layer + 1, microbatch);
  }
  return inputs;
}

/// By job, slot and microbatch: the plan's order of work.
offload::ReadOrder Worker::read_order(const StepJob& job, const partition::BoundaryReaders& readers,
                                      std::uint32_t round_microbatch) const {
  offload::ReadOrder order;
  std::size_t count = 0;
  for (const std::uint32_t reader : {readers.first, readers.second}) {
    if (reader == partition::kNoSlot || (job.evaluate && plan_.slots[reader].phase == SlotPhase::kBackward)) continue;
    const std::uint64_t visit = job.first_round * plan_.slots.size() + reader;
    order.reads[count++] = visit * parts_.work.microbatches + round_microbatch + 1;
  }
  return order;
}

/// Unified devices read them in place, and retire() lets them go.
absl::Status Worker::send_inputs(const SlotState& slot, const Errand& errand, std::uint32_t parity, VisitMemory& memory,
                                 Arrival& arrival) {
  const StepJob& job = *errand.job;
  const Bytes boundary = parts_.model->boundary_bytes(job.buckets[errand.microbatch]);
  const Inputs wanted = inputs_of(job, slot, errand.microbatch);
  const auto send = [&](std::size_t which, devices::BufferView from, devices::BufferView to,
                        devices::BufferView& there) -> absl::Status {
    to.size = from.size;
    there = unified_ ? from : to;
    if (unified_) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(arrival.tickets[which],
                           submit(Direction::kUp, {from, to, Urgency::kActivation,
                                                   tag("activations", job, slot, errand.microbatch), nullptr, 0}));
    return absl::OkStatus();
  };
  const auto bring = [&](std::size_t which, std::optional<offload::BoundaryPlace> Inputs::*input,
                         devices::BufferView& there) -> absl::Status {
    if (!(wanted.*input)) return absl::OkStatus();
    const offload::BoundaryPlace& from = *(wanted.*input);
    RONDO_RETURN_IF_ERROR(in_slices([&](Clock::time_point until) { return shared_.boundaries->hold(from, until); }));
    {
      const MutexLock lock(mutex_);
      held_inputs_.*input = from;
    }
    return send(which, shared_.boundaries->view(from, boundary), inputs_[parity * 2 + which - 1].view(), there);
  };
  // The batch is there already: it need not wait for the boundaries.
  const devices::BufferView batch = job.batches[errand.microbatch];
  const devices::BufferView there = batches_[parity].view();
  const BatchLayout layout(*parts_.model, job.buckets[errand.microbatch]);
  RONDO_RETURN_IF_ERROR(send(0, batch.part(0, layout.common()), there, memory.batch));
  const auto [first, size] = layout.block_rows(*parts_.model, slot.slot.first_layer, slot.slot.last_layer);
  devices::BufferView rows;
  if (size > 0) RONDO_RETURN_IF_ERROR(send(3, batch.part(first, size), there.part(first, size), rows));
  memory.batch = unified_ ? batch : there;
  RONDO_RETURN_IF_ERROR(bring(1, &Inputs::activation, memory.input_activation));
  RONDO_RETURN_IF_ERROR(bring(2, &Inputs::gradient, memory.input_gradient));
  if (!unified_) return absl::OkStatus();
  const MutexLock lock(mutex_);
  held_inputs_ = {};
  return absl::OkStatus();
}

/// Ends what send_inputs() began.
absl::Status Worker::land(Arrival& arrival) {
  for (transfer::Ticket& ticket : arrival.tickets) {
    if (ticket.number == 0) continue;
    RONDO_RETURN_IF_ERROR(blame(engine_->wait(Direction::kUp, ticket, kNoDeadline)));
    ticket = {};
  }
  let_go_of_inputs();
  return absl::OkStatus();
}

void Worker::let_go_of_inputs() {
  Inputs held;
  {
    const MutexLock lock(mutex_);
    held = std::exchange(held_inputs_, {});
  }
  held.let_go(*shared_.boundaries);
}

/// For the first link of a chain to follow what send_inputs() has sent: the host need not see it arrive. But what waits
/// for something else meanwhile must not hold boundaries in memory.
absl::Status Worker::follow_inputs(const StepJob& job, const SlotState& slot, const ChainLink& first,
                                   Arrival& arrival) {
  if (unified_) return absl::OkStatus();
  bool at_once = !first.writes_rows && first.layer >= slot.slot.first_layer;
  if (at_once && weights_in_place_) {
    for (model::LayerIndex layer = first.layer; layer <= first.last_layer && at_once; ++layer) {
      at_once = are_published(job, layer);
    }
  } else if (at_once) {
    const MutexLock lock(mutex_);
    at_once = weights_are_ready(first.last_layer - slot.slot.first_layer);
  }
  if (!at_once) return land(arrival);
  for (const transfer::Ticket ticket : arrival.tickets) {
    absl::StatusOr<devices::Point> point = engine_->wait_until_enqueued(Direction::kUp, ticket, kNoDeadline);
    if (!point.ok()) return blame(point.status());
    if (point->timeline != nullptr) arrival.points[arrival.count_points++] = *point;
  }
  return absl::OkStatus();
}

/// Whose memory the slot's outputs go to. What the lost device has published of a microbatch others may be reading, or
/// have done with: it is computed once more, into memory of this worker, and stays there.
absl::Status Worker::reserve_outputs(SlotState& slot, const Errand& errand, std::uint32_t parity, VisitMemory& memory) {
  const StepJob& job = *errand.job;
  const Bytes boundary = parts_.model->boundary_bytes(job.buckets[errand.microbatch]);
  const bool sends = slot.slot.phase == SlotPhase::kForward || !job.evaluate;
  const BoundaryKind kind =
      slot.slot.phase == SlotPhase::kForward ? BoundaryKind::kActivation : BoundaryKind::kGradient;
  memory.outputs.resize(slot.published.size());
  for (std::size_t i = 0; sends && i < slot.published.size(); ++i) {
    const partition::PublishedBoundary& published = slot.published[i];
    const auto target = place(job, kind, slot, published.cut, errand.microbatch);
    const bool there = errand.repeated || (assignment_.taken_over && shared_.boundaries->was_published(target));
    if (!there) {
      const offload::ReadOrder order = read_order(job, published.readers, target.microbatch);
      RONDO_RETURN_IF_ERROR(in_slices(
          [&](Clock::time_point until) { return shared_.boundaries->reserve(target, until, boundary, order); }));
    }
    memory.outputs[i] = unified_ && !there ? shared_.boundaries->view(target, boundary)
                                           : outputs_[parity * most_cuts_ + i].view().part(0, boundary);
  }
  return absl::OkStatus();
}

absl::Status Worker::feed_microbatch(SlotState& slot, const Errand& errand) {
  const StepJob& job = *errand.job;
  std::uint64_t fed = 0;
  std::uint64_t visit = 0;
  {
    const MutexLock lock(mutex_);
    if (!wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return microbatches_retired_ + 1 >= microbatches_fed_;
        })) {
      return stopped_error();
    }
    // Rows of a lookup table lie in the workspace until they are retired, and another slot lays the workspace out
    // otherwise.
    const bool rows_in_the_way = slot_before_ != nullptr && slot_before_ != &slot && slot_before_->writes_rows;
    if (rows_in_the_way && !wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return microbatches_retired_ >= microbatches_fed_;
        })) {
      return stopped_error();
    }
    slot_before_ = &slot;
    fed = microbatches_fed_;
    visit = visits_fed_;
  }
  const auto parity = static_cast<std::uint32_t>(fed % 2);
  const std::uint32_t bucket = job.buckets[errand.microbatch];
  VisitMemory& memory = memory_[parity];
  RONDO_RETURN_IF_ERROR(reserve_outputs(slot, errand, parity, memory));
  Arrival arrival;
  RONDO_RETURN_IF_ERROR(send_inputs(slot, errand, parity, memory, arrival));
  memory.workspace = workspace_.view();
  memory.held = slot.layout.held.empty() ? devices::BufferView() : left_.view().part(slot.left_at, left_bytes_);
  if (shared_.card_state != nullptr) memory.rows = shared_.card_state->rows(bucket);
  memory.loss = unified_ ? losses_[parity].view()
                         : memory.batch.part(BatchLayout(*parts_.model, bucket).loss_offset(), sizeof(double));
  memory.weights = &slot.stage->weights[(weights_in_place_ ? job.version : visit) % 2];
  memory.gradients = slot.computes_gradients ? &slot.stage->gradients[errand.gradient_buffer] : nullptr;
  const std::vector<ChainLink>& chain = job.evaluate ? slot.evaluate_chain : slot.train_chain;
  RONDO_RETURN_IF_ERROR(follow_inputs(job, slot, chain.front(), arrival));
  const Clock::time_point begun = Clock::now();
  RONDO_RETURN_IF_ERROR(enqueue_chain(slot, errand, fed, memory, arrival));
  const MutexLock lock(mutex_);
  const partition::Round round = round_of(job, slot);
  retirements_[fed % retirements_.size()] = {errand.job,
                                             &slot,
                                             errand.microbatch,
                                             errand.microbatch - round.first_microbatch,
                                             job.first_round + slot.slot.round,
                                             compute_value_,
                                             parity,
                                             bucket,
                                             errand.ends_visit,
                                             errand.repeated,
                                             begun};
  ++microbatches_fed_;
  notify({Waiter::kRetiring});
  return absl::OkStatus();
}

/// What sums of a group begin with, as far as the first microbatch does not set them.
void Worker::clear_gradients(const StepJob& job, const SlotState& slot, std::uint32_t buffer) {
  devices::Queue& queue = device_.queue(devices::QueueRole::kCompute);
  const auto clear = [&](devices::BufferView view) {
    queue.clear(view, {}, {compute_.get(), ++compute_value_}, tag("clear", job, slot, 0));
  };
  if (slot.adds_rows) clear(shared_.card_state->rows_sum());
  if (sets_gradients_) return;
  const std::vector<StagePlaces::Sent>& sent = slot.stage->sent[buffer];
  devices::BufferView run;
  for (std::size_t s = 0; s < sent.size(); ++s) {
    run = offload::follows(run, sent[s].view) ? offload::joined(run, sent[s].view) : sent[s].view;
    if (s + 1 < sent.size() && offload::follows(run, sent[s + 1].view)) continue;
    clear(run);
  }
}

absl::Status Worker::enqueue_chain(SlotState& slot, const Errand& errand, std::uint64_t fed, VisitMemory& memory,
                                   Arrival& arrival) {
  const StepJob& job = *errand.job;
  const std::uint32_t bucket = job.buckets[errand.microbatch];
  const auto parity = static_cast<std::uint32_t>(fed % 2);
  devices::Queue& queue = device_.queue(devices::QueueRole::kCompute);
  const std::vector<ChainLink>& chain = job.evaluate ? slot.evaluate_chain : slot.train_chain;
  const bool sets_gradients = sets_gradients_ && clear_before_gradients_;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const ChainLink& link = chain[i];
    for (model::LayerIndex layer = link.layer; layer <= link.last_layer; ++layer) {
      if (layer < slot.slot.first_layer) continue;
      RONDO_RETURN_IF_ERROR(wait_for_weights(job, slot, layer - slot.slot.first_layer));
    }
    {
      // The rows of the microbatch before must have left the workspace.
      const MutexLock lock(mutex_);
      const bool ready = wait_for(Waiter::kFeeding, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !link.writes_rows || microbatches_retired_ >= fed;
      });
      if (!ready) return stopped_error();
      ++threads_in_device_;
    }
    if (clear_before_gradients_ && link.phase != model::Phase::kForward) {
      // Not sooner: the sums may be the home's own, which the optimizer reads until all of the slot's layers are
      // updated, and that the forward links before have waited for.
      clear_gradients(job, slot, errand.gradient_buffer);
      clear_before_gradients_ = false;
    }
    const devices::Program& program = programs_.get(link.layer, link.phase, link.keep, bucket);
    devices::Bindings& bindings = bindings_[parity][i];
    bind(*parts_.model, link, program, slot.slot, slot.layout, memory, bucket, bindings);
    bindings.sets_gradients = sets_gradients;
    const std::span<const devices::Point> waits(arrival.points.data(), i == 0 ? arrival.count_points : 0);
    queue.run(program, bindings, waits, {compute_.get(), ++compute_value_},
              tag(name_of(slot.slot.phase), job, slot, errand.microbatch));
    if (link.adds_rows) {
      const CardState::Bound& addition = shared_.card_state->rows_addition(bucket);
      queue.run(*addition.program, addition.bindings, {}, {compute_.get(), ++compute_value_},
                tag("gradients", job, slot, errand.microbatch));
    }
    compute_enqueued_.store(compute_value_, std::memory_order_relaxed);
    RONDO_RETURN_IF_ERROR(come_out_of_device());
    if (i == 0) RONDO_RETURN_IF_ERROR(land(arrival));
  }
  return absl::OkStatus();
}

// Weights.

void Worker::prefetch_loop() {
  for (;;) {
    const StepJob* job = nullptr;
    {
      const MutexLock lock(mutex_);
      if (!wait_for(Waiter::kPrefetching,
                    [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return jobs_prefetched_ < jobs_ || may_go_ahead(); }))
        return;
      if (jobs_prefetched_ < jobs_) job = job_ring_[jobs_prefetched_ % kMostJobs];
    }
    const absl::Status status = job == nullptr ? go_ahead() : prefetch_job(*job);
    if (!status.ok()) return leave(status);
  }
}

absl::Status Worker::prefetch_job(const StepJob& job) {
  const SlotState* first = nullptr;
  for (const SlotState& slot : slots_) {
    if (!runs_in_job(job, slot)) continue;
    if (first == nullptr) first = &slot;
    const std::size_t layers_there = &slot == ahead_.slot ? ahead_.layers : 0;
    ahead_ = {};
    RONDO_RETURN_IF_ERROR(prefetch_visit(job, slot, layers_there));
  }
  // The job may be another one as soon as it counts as done. Who has taken slots over has no other.
  if (!job.last && !assignment_.taken_over) ahead_ = {first, job.version, job.step + 1, 0};
  const MutexLock lock(mutex_);
  ++jobs_prefetched_;
  notify({Waiter::kOutside});
  return absl::OkStatus();
}

/// A job like the last one may follow, and the buffer of its first visit is free.
bool Worker::may_go_ahead() const {
  return ahead_.slot != nullptr && ahead_.layers < layers_of(*ahead_.slot) && visits_retired_ + 1 >= visits_prefetched_;
}

/// Brings, until that job begins, what no update changes: the frozen weights of its first visit, layer by layer.
absl::Status Worker::go_ahead() {
  std::size_t buffer = 0;
  {
    const MutexLock lock(mutex_);
    buffer = visits_prefetched_ % 2;
  }
  const devices::WorkTag tag{"weights", ahead_.step, ahead_.slot->index, 0};
  transfer::Ticket before;
  bool goes_on = true;
  while (goes_on && ahead_.layers < layers_of(*ahead_.slot)) {
    transfer::Ticket last = before;
    RONDO_RETURN_IF_ERROR(
        submit_weights({ahead_.version, tag, Share::kFrozen}, *ahead_.slot, ahead_.layers++, buffer, last));
    // One is on its way while the next is handed in, as in prefetch_visit().
    RONDO_RETURN_IF_ERROR(blame(engine_->wait(Direction::kUp, before, kNoDeadline)));
    before = last;
    const MutexLock lock(mutex_);
    goes_on = jobs_prefetched_ == jobs_;
  }
  return blame(engine_->wait(Direction::kUp, before, kNoDeadline));
}

/// Waits until no visit reads the weights of a layer that stays. At staleness 0 none does: updates come after the
/// commit point.
absl::Status Worker::wait_for_readers(model::LayerIndex layer) {
  const MutexLock lock(mutex_);
  return wait_for(Waiter::kPrefetching,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return visits_retired_ >= read_by_[layer]; })
             ? absl::OkStatus()
             : stopped_error();
}

/// Hands in what must come of a layer's weights: all, or of a layer that stays what it does not hold in this version;
/// nothing for gradients of weights, which need none.
absl::Status Worker::submit_weights(const Wanted& what, const SlotState& slot, std::size_t place, std::size_t buffer,
                                    transfer::Ticket& last) {
  const model::LayerIndex layer = slot.slot.first_layer + static_cast<model::LayerIndex>(place);
  const std::uint64_t held = slot.stage->resident[place] ? held_[layer] : 0;
  const std::uint64_t wanted = what.version + 1;
  if (partition::catches_up(slot.slot)) return absl::OkStatus();
  const auto& uses = parts_.model->layers()[layer].parameters;
  transfer::Transfer run{{}, {}, Urgency::kWeight, what.tag, nullptr, 0};
  const auto send = [&]() -> absl::Status {
    if (run.from.memory == nullptr) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(last, submit(Direction::kUp, run));
    run.from = run.to = {};
    return absl::OkStatus();
  };
  for (const std::size_t p : slot.stage->travel[place]) {
    const model::ParameterId id = uses[p].id;
    const bool trained = parts_.model->parameters()[id].trained;
    if (trained && shared_.card_state != nullptr) continue;  // lies there
    if (what.share != Share::kAll && trained != (what.share == Share::kTrained)) continue;
    if (trained ? held == wanted : held != 0) continue;
    if (trained && parts_.parameters->version(id) < what.version) {
      RONDO_RETURN_IF_ERROR(send());  // it need not wait for what is not there yet
      RONDO_RETURN_IF_ERROR(in_slices(
          [&](Clock::time_point until) { return parts_.parameters->wait_for_version(id, what.version, until); }));
    }
    if (held != 0) RONDO_RETURN_IF_ERROR(wait_for_readers(layer));
    const devices::BufferView home = rows_of(*parts_.model, uses[p], parts_.parameters->published(id, what.version));
    if (!travels_with(run, home, slot.stage->weights[buffer][place][p])) RONDO_RETURN_IF_ERROR(send());
    take_along(run, home, slot.stage->weights[buffer][place][p]);
  }
  RONDO_RETURN_IF_ERROR(send());
  if (slot.stage->resident[place] && what.share != Share::kFrozen) held_[layer] = wanted;
  return absl::OkStatus();
}

/// Of the first `layers_there` layers the frozen weights have come ahead.
absl::Status Worker::prefetch_visit(const StepJob& job, const SlotState& slot, std::size_t layers_there) {
  std::uint64_t visit = 0;
  {
    const MutexLock lock(mutex_);
    visit = visits_prefetched_;
    if (!wait_for(Waiter::kPrefetching,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return visits_retired_ + 1 >= visit; }))
      return stopped_error();
  }
  const std::size_t layers = layers_of(slot);
  // A layer is handed in before the one before it is waited for, so that the link stays busy.
  transfer::Ticket before;
  for (std::size_t i = 0; i <= layers; ++i) {
    transfer::Ticket last = before;
    if (i < layers) {
      const Share share = i < layers_there ? Share::kTrained : Share::kAll;
      RONDO_RETURN_IF_ERROR(
          submit_weights({job.version, tag("weights", job, slot, 0), share}, slot, i, visit % 2, last));
    }
    if (i > 0) {
      // First come, first served within an urgency: the last piece of a layer ends after its others.
      RONDO_RETURN_IF_ERROR(blame(engine_->wait(Direction::kUp, before, kNoDeadline)));
      const MutexLock lock(mutex_);
      layers_ready_ = i;
      notify({Waiter::kFeeding});
    }
    before = last;
  }
  for (std::size_t i = 0; i < layers; ++i) {
    if (slot.stage->resident[i]) read_by_[slot.slot.first_layer + i] = visit + 1;
  }
  const MutexLock lock(mutex_);
  ++visits_prefetched_;
  layers_ready_ = 0;
  notify({Waiter::kFeeding});
  return absl::OkStatus();
}

}  // namespace rondo::schedule
