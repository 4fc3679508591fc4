// Setting a worker up (memory, views, programs) and ending it. What it does in between is in worker_feed.cpp and
// worker_home.cpp.
#include "worker.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "card_state.h"
#include "rondo/base/status.h"
#include "rondo/base/thread.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {
namespace {

using Clock = std::chrono::steady_clock;

/// A layer's parameters, by their places in its list.
std::vector<std::size_t> frozen_first(const model::Architecture& model, model::LayerIndex layer) {
  const std::vector<model::ParameterUse>& uses = model.layers()[layer].parameters;
  std::vector<std::size_t> order(uses.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t use) { return !model.parameters()[uses[use].id].trained; });
  return order;
}

}  // namespace

Worker::Worker(SharedState& shared, Assignment assignment)
    : shared_(shared),
      parts_(*shared.parts),
      plan_(*shared.plan),
      assignment_(std::move(assignment)),
      device_(*shared.parts->devices[assignment_.device].device),
      unified_(device_.caps().unified_memory),
      weights_in_place_(unified_ || device_.caps().weights_in_place),
      sets_gradients_(device_.caps().sets_gradients &&
                      std::ranges::none_of(plan_.slots, &partition::Slot::defers_weights)),
      programs_(device_, *shared.parts->model, shared.parts->work.sequence_length),
      publisher_(shared) {}

absl::StatusOr<std::unique_ptr<Worker>> Worker::make(SharedState& shared, Assignment assignment) {
  auto worker = std::unique_ptr<Worker>(new Worker(shared, std::move(assignment)));
  const absl::Status status = worker->prepare();
  if (!status.ok()) return with_context(status, worker->device_.caps().name);
  return worker;
}

absl::Status Worker::prepare() {
  RONDO_ASSIGN_OR_RETURN(compute_, device_.timeline());
  for (auto& end : ends_) {
    RONDO_ASSIGN_OR_RETURN(end, device_.timeline());
  }
  link_ = link_options(parts_.devices[assignment_.device].profile,
                       parts_.recovery.enabled() && can_recover(parts_.devices.size()),
                       parts_.recovery.verify_transfers, parts_.shape->longest_transfer);
  RONDO_RETURN_IF_ERROR(allocate());
  slots_.reserve(assignment_.slots.size());
  for (const std::uint32_t slot : assignment_.slots) RONDO_RETURN_IF_ERROR(prepare_slot(slot));
  std::size_t longest_chain = 0;
  for (const SlotState& slot : slots_) {
    longest_chain = std::max({longest_chain, slot.train_chain.size(), slot.evaluate_chain.size()});
  }
  for (auto& ring : bindings_) {
    ring.resize(longest_chain);
    for (devices::Bindings& bindings : ring) bindings.tensors.reserve(64);
  }
  set_bounds();
  if (!assignment_.taken_over) {
    trace_ = std::make_unique<DeviceTrace>(device_.caps().name, parts_.trace_spans, parts_.traced);
    device_.observe(trace_.get());
  }
  if (!unified_) RONDO_RETURN_IF_ERROR(prepare_links());
  if (!weights_in_place_) RONDO_RETURN_IF_ERROR(start(&Worker::prefetch_loop));
  RONDO_RETURN_IF_ERROR(start(&Worker::feed_loop));
  RONDO_RETURN_IF_ERROR(start(&Worker::retire_loop));
  return start(&Worker::gradient_loop);
}

absl::Status Worker::start(void (Worker::*body)()) {
  const MutexLock lock(mutex_);  // it does not leave before it is counted
  RONDO_ASSIGN_OR_RETURN(std::thread thread, start_thread("a device's worker", [this, body] { run_loop(body); }));
  threads_.push_back(std::move(thread));
  ++threads_running_;
  return absl::OkStatus();
}

absl::Status Worker::prepare_links() {
  RONDO_ASSIGN_OR_RETURN(engine_, transfer::TransferEngine::make(device_, link_));
  if (shared_.boundaries == nullptr) return absl::OkStatus();
  for (const devices::BufferView boundary : shared_.boundaries->memory()) {
    device_.expect_copies(boundary, devices::QueueRole::kUp);
  }
  return absl::OkStatus();
}

/// See hang_bound.h. Programs are watched one by one, so that a layer's arithmetic is what the first bound is about.
void Worker::set_bounds() {
  constexpr double kSlowest = 2e9;  // FLOP/s; far below any CPU's that several devices share
  const RecoverySettings& settings = parts_.recovery;
  double predicted = 0;
  double flops = 0;
  std::uint64_t visits = 0;
  for (const SlotState& slot : slots_) {
    if (!slot.train_chain.empty()) ++visits;
    predicted = std::max(predicted, slot.slot.seconds);
    for (partition::LayerIndex layer = slot.slot.first_layer; layer <= slot.slot.last_layer; ++layer) {
      const partition::LayerShape& shape = parts_.shape->layers[layer];
      flops = std::max(flops, shape.forward.flops());
      if (partition::goes_back(slot.slot)) flops = std::max(flops, shape.backward.front().flops());
    }
  }
  const double arithmetic = device_.caps().does_arithmetic ? flops / kSlowest : 0.0;
  const double first = arithmetic + device_.caps().first_use_seconds;
  patience_.set(settings.hang_seconds, settings.hang_factor, predicted, first, visits);
}

std::vector<partition::LayerIndex> Worker::resident_layers() const {
  if (assignment_.taken_over) return {};  // the device's own worker holds them
  return partition::residents_of(plan_, assignment_.device);
}

absl::Status Worker::allocate() {
  partition::DeviceShape device;
  device.name = device_.caps().name;
  device.profile = parts_.devices[assignment_.device].profile;
  device.unified_memory = unified_;
  device.weights_in_place = device_.caps().weights_in_place;
  // The layout asks whose a slot is: exactly those of the assignment.
  std::vector<partition::Slot> slots = plan_.slots;
  for (partition::Slot& slot : slots) slot.device = ~partition::DeviceIndex{0};
  for (const std::uint32_t index : assignment_.slots) slots[index].device = assignment_.device;
  partition::DeviceLayout layout = partition::layout_device(*parts_.shape, parts_.work, device, assignment_.device,
                                                            slots, plan_.keep, resident_layers());
  const auto take = [&](devices::Buffer& buffer, Bytes size) -> absl::Status {
    if (size == 0) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(buffer, device_.allocate(size, devices::MemoryKind::kDevice));
    return absl::OkStatus();
  };
  if (unified_ && assignment_.taken_over) {
    // Elsewhere work in place would be done on what others read by now: boundaries and sums that are home already.
    partition::DeviceShape apart = device;
    apart.unified_memory = false;
    const partition::DeviceLayout own =
        partition::layout_device(*parts_.shape, parts_.work, apart, assignment_.device, slots, plan_.keep);
    layout.boundary = own.boundary;
    layout.output_buffers = own.output_buffers;
    layout.gradient_buffers = own.gradient_buffers;
  }
  resident_.resize(parts_.shape->layers.size());
  if (layout.resident > 0) {
    for (const partition::LayerIndex layer : resident_layers()) {
      RONDO_RETURN_IF_ERROR(take(resident_[layer], partition::resident_bytes(*parts_.shape, layer)));
    }
  }
  held_.assign(parts_.shape->layers.size(), 0);
  read_by_.assign(parts_.shape->layers.size(), 0);
  for (std::uint32_t i = 0; i < layout.weight_buffers; ++i) RONDO_RETURN_IF_ERROR(take(weights_[i], layout.weights));
  for (std::uint32_t i = 0; i < layout.input_buffers; ++i) RONDO_RETURN_IF_ERROR(take(inputs_[i], layout.boundary));
  outputs_.resize(layout.output_buffers);
  most_cuts_ = layout.output_buffers / 2;
  for (devices::Buffer& buffer : outputs_) RONDO_RETURN_IF_ERROR(take(buffer, layout.boundary));
  RONDO_RETURN_IF_ERROR(take(left_, layout.held * layout.held_places));
  left_bytes_ = layout.held;
  left_places_ = partition::held_places(slots);
  for (std::uint32_t i = 0; i < layout.batch_buffers; ++i) RONDO_RETURN_IF_ERROR(take(batches_[i], layout.batch));
  groups_room_ = partition::groups_at_a_time(slots, assignment_.device);
  gradients_.resize(layout.gradient_buffers);
  for (devices::Buffer& buffer : gradients_) RONDO_RETURN_IF_ERROR(take(buffer, layout.gradients));
  {
    const MutexLock lock(mutex_);
    errands_.resize(groups_room_);
    gradient_buffers_taken_.resize(groups_room_);
  }
  RONDO_RETURN_IF_ERROR(take(workspace_, layout.workspace));
  for (devices::Buffer& loss : losses_) {
    RONDO_ASSIGN_OR_RETURN(loss, devices::allocate_host(sizeof(double), "batches"));
  }
  const bool phantom = parts_.parameters->phantom();
  if (!unified_ && layout.gradients > 0 && partition::groups_of(parts_.work) > 1) {
    RONDO_ASSIGN_OR_RETURN(gradient_staging_,
                           devices::allocate_host_unless(phantom, layout.gradients, "gradient staging"));
  }
  return absl::OkStatus();
}

absl::Status Worker::prepare_slot(std::uint32_t slot_index) {
  const partition::Plan& plan = plan_;
  SlotState state;
  state.index = slot_index;
  state.slot = plan.slots[slot_index];
  state.layout = partition::layout_workspace(*parts_.shape, parts_.work, state.slot, plan.keep);
  state.published = partition::published_boundaries(*parts_.shape, state.slot, plan.slots);
  leaving_.resize(std::max(leaving_.size(), state.published.size()));
  publisher_.targets.resize(leaving_.size());
  state.computes_gradients = state.slot.phase != partition::SlotPhase::kForward &&
                             parts_.model->first_backward_layer() < parts_.model->layers().size();
  if (state.computes_gradients || state.slot.phase == partition::SlotPhase::kForward) {
    state.train_chain = make_chain(*parts_.model, *parts_.shape, state.slot, plan.slots, plan.keep, false);
  }
  if (partition::goes_forward(state.slot)) {
    state.evaluate_chain = make_chain(*parts_.model, *parts_.shape, state.slot, plan.slots, plan.keep, true);
  }
  if (!state.layout.held.empty()) state.left_at = left_places_[slot_index] * left_bytes_;
  for (const ChainLink& link : state.train_chain) state.writes_rows = state.writes_rows || link.writes_rows;
  if (shared_.card_state != nullptr) {
    for (ChainLink& link : state.train_chain) link.adds_rows = std::exchange(link.writes_rows, false);
    state.adds_rows = std::exchange(state.writes_rows, false);
  }
  if (state.writes_rows && !unified_ && !row_staging_) {
    RONDO_ASSIGN_OR_RETURN(
        row_staging_, devices::allocate_host_unless(parts_.parameters->phantom(),
                                                    parts_.shape->layers[0].row_gradient_bytes, "gradient staging"));
  }
  RONDO_ASSIGN_OR_RETURN(state.stage, place_stage(state));
  if (state.computes_gradients) count_links(state);
  RONDO_RETURN_IF_ERROR(compile(state));
  slots_.push_back(std::move(state));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Worker::StagePlaces>> Worker::place_stage(const SlotState& state) {
  const auto same = std::ranges::find_if(slots_, [&](const SlotState& other) {
    return partition::stage_of(other.slot) == partition::stage_of(state.slot);
  });
  if (same != slots_.end()) return same->stage;
  auto places = std::make_shared<StagePlaces>();
  RONDO_RETURN_IF_ERROR(place_weights(state.slot, *places));
  if (state.computes_gradients) place_gradients(state.slot, *places);
  return places;
}

absl::Status Worker::place_weights(const partition::Slot& slot, StagePlaces& places) {
  const std::vector<partition::LayerIndex> resident = resident_layers();
  for (partition::LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
    places.resident.push_back(!weights_in_place_ && std::ranges::binary_search(resident, layer));
    places.travel.push_back(frozen_first(*parts_.model, layer));
  }
  for (std::size_t buffer = 0; buffer < 2; ++buffer) {
    Bytes streamed = 0;
    for (partition::LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      const bool stays = places.resident[layer - slot.first_layer];
      Bytes kept = 0;
      Bytes& offset = stays ? kept : streamed;
      const std::vector<model::ParameterUse>& uses = parts_.model->layers()[layer].parameters;
      std::vector<devices::BufferView>& views = places.weights[buffer].emplace_back(uses.size());
      for (const std::size_t p : places.travel[layer - slot.first_layer]) {
        if (shared_.card_state != nullptr && parts_.model->parameters()[uses[p].id].trained) {
          views[p] = rows_of(*parts_.model, uses[p], shared_.card_state->weights(uses[p].id));
          continue;
        }
        // Where they are read at home: by version.
        views[p] = rows_of(*parts_.model, uses[p], parts_.parameters->published(uses[p].id, buffer));
        if (unified_) continue;
        if (weights_in_place_) {
          RONDO_RETURN_IF_ERROR(device_.use_in_place(views[p]));
          continue;
        }
        // What stays and is not trained comes once.
        if (!stays || parts_.model->parameters()[uses[p].id].trained) {
          device_.expect_copies(views[p], devices::QueueRole::kUp);
        }
        views[p] = (stays ? resident_[layer] : weights_[buffer]).view().part(offset, views[p].size);
        offset += device_bytes(*parts_.model, uses[p]);
      }
    }
  }
  return absl::OkStatus();
}

void Worker::place_gradients(const partition::Slot& slot, StagePlaces& places) {
  places.number = growing_.size();
  growing_.push_back(kNoBuffer);
  places.gradients.resize(groups_room_ + kMostJobs);
  places.sent.resize(places.gradients.size());
  for (std::size_t buffer = 0; buffer < places.gradients.size(); ++buffer) {
    const bool at_home = buffer >= groups_room_;
    if (at_home && shared_.jobs[buffer - groups_room_].gradients == nullptr) continue;
    Bytes offset = 0;
    for (partition::LayerIndex layer = slot.first_layer; layer <= slot.last_layer; ++layer) {
      std::vector<devices::BufferView>& views = places.gradients[buffer].emplace_back();
      const bool table = parts_.model->layers()[layer].kind == model::LayerKind::kEmbedding;
      for (const model::ParameterUse& use : parts_.model->layers()[layer].parameters) {
        const model::Parameter parameter = parts_.model->part_of(use);
        const Bytes size = parameter.elements() * sizeof(float);
        views.emplace_back();  // stays empty where nothing is summed up
        if (!parameter.trained || table) continue;
        if (shared_.card_state != nullptr) {
          if (!at_home) views.back() = rows_of(*parts_.model, use, shared_.card_state->sum(use.id));
        } else if (at_home) {
          views.back() = rows_of(*parts_.model, use, shared_.jobs[buffer - groups_room_].gradients->sum(use.id));
          if (!unified_ && !link_.staging_down) device_.expect_copies(views.back(), devices::QueueRole::kDown);
        } else if (buffer < gradients_.size()) {
          views.back() = gradients_[buffer].view().part(offset, size);
          offset += round_up(size, partition::kAlignment);
        }
        if (views.back().memory != nullptr) places.sent[buffer].push_back({use, views.back(), layer});
      }
    }
  }
}

void Worker::count_links(SlotState& state) {
  state.links_behind.assign(layers_of(state), 0);
  for (std::size_t i = 0; i < state.train_chain.size(); ++i) {
    const ChainLink& link = state.train_chain[i];
    if (link.phase == model::Phase::kForward) continue;
    for (model::LayerIndex layer = std::max(link.layer, state.slot.first_layer); layer <= link.last_layer; ++layer) {
      state.links_behind[layer - state.slot.first_layer] = state.train_chain.size() - 1 - i;
    }
  }
}

absl::Status Worker::compile(const SlotState& state) {
  for (const std::uint32_t bucket : parts_.buckets) {
    for (const auto* chain : {&state.train_chain, &state.evaluate_chain}) {
      for (const ChainLink& link : *chain) {
        RONDO_RETURN_IF_ERROR(programs_.prepare(link.layer, link.phase, link.keep, bucket).status());
      }
    }
  }
  return absl::OkStatus();
}

Worker::~Worker() {
  stop(absl::CancelledError("the run was stopped"));
  join();
  engine_.reset();
  if (trace_ != nullptr) device_.observe(nullptr);
}

void Worker::stop(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    stopped_.store(true, std::memory_order_release);
    for (CondVar& waiter : changed_) waiter.notify_all();
  }
  for (const StepJob& job : shared_.jobs) job.ledger->wake();
  // Work not yet begun is dropped, and who waits for it is told.
  if (compute_ != nullptr) compute_->poison(why);
  if (engine_ != nullptr) engine_->fail(why);
}

void Worker::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Worker::wait_until_still() {
  {
    const MutexLock lock(mutex_);
    while (threads_running_ > threads_in_device_) changed(Waiter::kOutside).wait(mutex_);
  }
  let_go_of_inputs();
}

void Worker::wait_until_unused() {
  wait_until_still();
  if (threads_have_left(false)) queues_are_empty();
}

bool Worker::threads_have_left(bool hung) {
  const MutexLock lock(mutex_);
  const auto deadline = end_of_patience();
  while (threads_running_ > (hung ? threads_in_device_ : 0)) {
    if (!changed(Waiter::kOutside).wait_until(mutex_, deadline)) break;
  }
  return threads_running_ == 0;
}

Worker::Ending Worker::end(bool hung) {
  if (!threads_have_left(hung)) return Ending::kThreadsInside;
  join();
  if (hung) return Ending::kMemoryInUse;
  return queues_are_empty() ? Ending::kFree : Ending::kMemoryInUse;
}

std::chrono::steady_clock::time_point Worker::end_of_patience() const {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_.seconds()));
}

/// Asks every queue for one more piece of work, once, and waits for it.
bool Worker::queues_are_empty() {
  if (engine_ != nullptr) engine_->join();
  if (!workspace_) return true;
  const auto deadline = end_of_patience();
  for (std::size_t role = 0; role < ends_.size() && !asked_; ++role) {
    device_.queue(static_cast<devices::QueueRole>(role))
        .clear(workspace_.view().part(0, 0), {}, {ends_[role].get(), 1}, {"end", 0, 0, 0});
  }
  asked_ = true;
  // An error says as well that the queue has come to it.
  return std::ranges::all_of(ends_, [deadline](const auto& end) {
    return end->wait(1, deadline).code() != absl::StatusCode::kDeadlineExceeded;
  });
}

void Worker::begin(StepJob& job) {
  const MutexLock lock(mutex_);
  job_ring_[jobs_++ % kMostJobs] = &job;
  notify({Waiter::kFeeding, Waiter::kPrefetching});
}

void Worker::wait_until_done(std::uint32_t ahead, const std::atomic<bool>& interrupted) {
  const MutexLock lock(mutex_);
  const std::uint64_t number = jobs_ - ahead;
  const JobEnd& end = job_ends_[(number - 1) % kMostJobs];
  while (!stopping_ && !interrupted.load(std::memory_order_acquire) &&
         (jobs_fed_ < number || microbatches_retired_ < end.microbatches || errands_done_ < end.errands ||
          (!weights_in_place_ && jobs_prefetched_ < number))) {
    changed(Waiter::kOutside).wait(mutex_);
  }
}

void Worker::wake() {
  const MutexLock lock(mutex_);
  notify({Waiter::kOutside});
}

absl::Status Worker::look_for_hang(double seconds, double waited) {
  if (stopped_.load(std::memory_order_acquire)) return absl::OkStatus();
  const std::uint64_t enqueued = compute_enqueued_.load(std::memory_order_relaxed);
  const std::uint64_t completed = compute_->completed();
  const double bound = patience_.seconds();
  std::array<std::uint64_t, 3> counts = {completed, 0, 0};
  std::array<bool, 3> under_way = {completed < enqueued, false, false};
  if (engine_ != nullptr) {
    for (const auto direction : {transfer::Direction::kUp, transfer::Direction::kDown}) {
      const auto role = static_cast<std::size_t>(direction == transfer::Direction::kUp ? devices::QueueRole::kUp
                                                                                       : devices::QueueRole::kDown);
      const transfer::LinkProgress progress = engine_->progress(direction);
      counts[role] = progress.landed_chunks;
      under_way[role] = progress.under_way;
    }
  }
  // With one queue for everything each kind of work waits for the others.
  if (device_.caps().hardware_queues == 1) counts.fill(counts[0] + counts[1] + counts[2]);
  constexpr const char* kWhat[] = {"computing", "copying to it", "copying from it"};
  absl::Status found;
  for (std::size_t role = 0; role < stillness_.size(); ++role) {
    const double still = stillness_[role].look(counts[role], under_way[role], seconds, waited);
    if (still <= bound || !found.ok()) continue;
    found = absl::UnavailableError(
        fmt::format("{}: hangs: {:.1f} s of {} and nothing finished", device_.caps().name, still, kWhat[role]));
  }
  return found;
}

std::uint64_t Worker::repeated_transfers() const {
  if (engine_ == nullptr) return 0;
  return engine_->stats(transfer::Direction::kUp).repeated_chunks +
         engine_->stats(transfer::Direction::kDown).repeated_chunks;
}

}  // namespace rondo::schedule
