// Setting a worker up: memory, views, programs. What it does afterwards is in worker_loops.cpp.
#include "worker.h"

#include <algorithm>

#include "rondo/base/status.h"
#include "rondo/devices/chunk.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {
namespace {

/// Host memory, or what stands for it on pools without arithmetic.
absl::StatusOr<devices::Buffer> host_memory(Bytes size, const char* purpose, bool phantom) {
  if (phantom) return devices::phantom_host(size);
  return devices::allocate_host(size, purpose);
}

}  // namespace

Worker::Worker(SharedState& shared, partition::DeviceIndex index)
    : shared_(shared),
      parts_(*shared.parts),
      index_(index),
      device_(*shared.parts->devices[index].device),
      unified_(device_.caps().unified_memory),
      programs_(device_, *shared.parts->model, shared.parts->work.sequence_length) {}

absl::StatusOr<std::unique_ptr<Worker>> Worker::make(SharedState& shared, partition::DeviceIndex index) {
  auto worker = std::unique_ptr<Worker>(new Worker(shared, index));
  const absl::Status status = worker->prepare();
  if (!status.ok()) return with_context(status, worker->device_.caps().name);
  return worker;
}

absl::Status Worker::prepare() {
  RONDO_ASSIGN_OR_RETURN(compute_, device_.timeline());
  RONDO_ASSIGN_OR_RETURN(end_, device_.timeline());
  RONDO_RETURN_IF_ERROR(allocate());
  for (std::uint32_t i = 0; i < parts_.plan->slots.size(); ++i) {
    if (parts_.plan->slots[i].device == index_) RONDO_RETURN_IF_ERROR(prepare_slot(i));
  }
  std::size_t longest_chain = 0;
  for (const SlotState& slot : slots_) {
    longest_chain = std::max({longest_chain, slot.train_chain.size(), slot.evaluate_chain.size()});
  }
  for (auto& ring : bindings_) {
    ring.resize(longest_chain);
    for (devices::Bindings& bindings : ring) bindings.tensors.reserve(64);
  }
  if (parts_.trace_spans > 0) {
    trace_ = std::make_unique<DeviceTrace>(device_.caps().name, parts_.trace_spans);
    device_.observe(trace_.get());
  }
  if (!unified_) {
    transfer::EngineOptions options;
    options.chunk_bytes = devices::chunk_for(std::max(parts_.devices[index_].profile.link_up, 1.0));
    RONDO_ASSIGN_OR_RETURN(engine_, transfer::TransferEngine::make(device_, options));
    threads_.emplace_back([this] { run_loop(&Worker::prefetch_loop); });
  }
  threads_.emplace_back([this] { run_loop(&Worker::feed_loop); });
  threads_.emplace_back([this] { run_loop(&Worker::retire_loop); });
  threads_.emplace_back([this] { run_loop(&Worker::gradient_loop); });
  return absl::OkStatus();
}

absl::Status Worker::allocate() {
  const partition::Plan& plan = *parts_.plan;
  partition::DeviceShape device;
  device.name = device_.caps().name;
  device.profile = parts_.devices[index_].profile;
  device.unified_memory = unified_;
  const partition::DeviceLayout layout = partition::layout_device(
      *parts_.shape, parts_.work, device, index_, plan.slots, plan.keep, partition::residents_of(plan, index_));
  const auto take = [&](devices::Buffer& buffer, Bytes size) -> absl::Status {
    if (size == 0) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(buffer, device_.allocate(size, devices::MemoryKind::kDevice));
    return absl::OkStatus();
  };
  RONDO_RETURN_IF_ERROR(take(resident_, layout.resident));
  held_.assign(parts_.shape->layers.size(), 0);
  for (std::uint32_t i = 0; i < layout.weight_buffers; ++i) RONDO_RETURN_IF_ERROR(take(weights_[i], layout.weights));
  for (std::uint32_t i = 0; i < layout.input_buffers; ++i) RONDO_RETURN_IF_ERROR(take(inputs_[i], layout.boundary));
  outputs_.resize(layout.output_buffers);
  most_cuts_ = layout.output_buffers / 2;
  for (devices::Buffer& buffer : outputs_) RONDO_RETURN_IF_ERROR(take(buffer, layout.boundary));
  for (std::uint32_t i = 0; i < layout.batch_buffers; ++i) RONDO_RETURN_IF_ERROR(take(batches_[i], layout.batch));
  for (std::uint32_t i = 0; i < layout.gradient_buffers; ++i) {
    RONDO_RETURN_IF_ERROR(take(gradients_[i], layout.gradients));
  }
  RONDO_RETURN_IF_ERROR(take(workspace_, layout.workspace));
  for (devices::Buffer& loss : losses_) {
    RONDO_ASSIGN_OR_RETURN(loss, devices::allocate_host(sizeof(double), "batches"));
  }
  const bool phantom = parts_.parameters->phantom();
  if (!unified_ && layout.gradients > 0 && partition::groups_of(parts_.work) > 1) {
    RONDO_ASSIGN_OR_RETURN(gradient_staging_, host_memory(layout.gradients, "gradient staging", phantom));
  }
  return absl::OkStatus();
}

absl::Status Worker::prepare_slot(std::uint32_t slot_index) {
  const partition::Plan& plan = *parts_.plan;
  SlotState state;
  state.index = slot_index;
  state.slot = plan.slots[slot_index];
  state.layout = partition::layout_workspace(*parts_.shape, parts_.work, state.slot, plan.keep);
  state.cuts = partition::published_cuts(state.slot, plan.slots);
  if (partition::sends_gradient(*parts_.shape, state.slot)) state.cuts = {state.slot.first_layer};
  state.computes_gradients = state.slot.phase != partition::SlotPhase::kForward &&
                             parts_.model->first_backward_layer() < parts_.model->layers().size();
  if (state.computes_gradients || state.slot.phase == partition::SlotPhase::kForward) {
    state.train_chain = make_chain(*parts_.model, *parts_.shape, state.slot, plan.slots, plan.keep, false);
  }
  if (state.slot.phase != partition::SlotPhase::kBackward) {
    state.evaluate_chain = make_chain(*parts_.model, *parts_.shape, state.slot, plan.slots, plan.keep, true);
  }
  for (const ChainLink& link : state.train_chain) state.writes_rows = state.writes_rows || link.writes_rows;
  if (state.writes_rows && !unified_ && !row_staging_) {
    RONDO_ASSIGN_OR_RETURN(row_staging_, host_memory(parts_.shape->layers[0].row_gradient_bytes, "gradient staging",
                                                     parts_.parameters->phantom()));
  }
  place_weights(state);
  if (state.computes_gradients) place_gradients(state);
  RONDO_RETURN_IF_ERROR(compile(state));
  slots_.push_back(std::move(state));
  return absl::OkStatus();
}

void Worker::place_weights(SlotState& state) {
  const std::vector<partition::LayerIndex> resident = partition::residents_of(*parts_.plan, index_);
  for (partition::LayerIndex layer = state.slot.first_layer; layer <= state.slot.last_layer; ++layer) {
    state.resident.push_back(!unified_ && std::ranges::binary_search(resident, layer));
  }
  for (std::size_t buffer = 0; buffer < 2; ++buffer) {
    Bytes streamed = 0;
    for (partition::LayerIndex layer = state.slot.first_layer; layer <= state.slot.last_layer; ++layer) {
      const bool stays = state.resident[layer - state.slot.first_layer];
      Bytes kept = partition::resident_offset(*parts_.shape, resident, layer).value_or(0);
      Bytes& offset = stays ? kept : streamed;
      std::vector<devices::BufferView>& views = state.weights[buffer].emplace_back();
      for (const model::ParameterId id : parts_.model->layers()[layer].parameters) {
        const devices::BufferView home = parts_.parameters->published(id);
        if (unified_) {
          views.push_back(home);
          continue;
        }
        views.push_back((stays ? resident_ : weights_[buffer]).view().part(offset, home.size));
        offset += device_bytes(*parts_.model, id);
      }
    }
  }
}

void Worker::place_gradients(SlotState& state) {
  for (std::size_t buffer = 0; buffer < 3; ++buffer) {
    Bytes offset = 0;
    for (partition::LayerIndex layer = state.slot.first_layer; layer <= state.slot.last_layer; ++layer) {
      std::vector<devices::BufferView>& views = state.gradients[buffer].emplace_back();
      const bool table = parts_.model->layers()[layer].kind == model::LayerKind::kEmbedding;
      for (const model::ParameterId id : parts_.model->layers()[layer].parameters) {
        const model::Parameter& parameter = parts_.model->parameters()[id];
        const Bytes size = parameter.elements() * sizeof(float);
        views.emplace_back();  // stays empty where nothing is summed up
        if (!parameter.trained || table) continue;
        if (buffer == 2) {
          views.back() = shared_.gradients->sum(id);
        } else if (gradients_[buffer]) {
          views.back() = gradients_[buffer].view().part(offset, size);
          offset += round_up(size, partition::kAlignment);
        }
        if (views.back().memory != nullptr) state.sent[buffer].emplace_back(id, views.back());
      }
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
  stop();
  join();
  engine_.reset();
  empty_compute_queue();
  if (trace_ != nullptr) device_.observe(nullptr);
}

void Worker::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  // Work not yet begun is dropped, and who waits for it is told.
  if (compute_ != nullptr) compute_->poison(absl::CancelledError("the run was stopped"));
}

void Worker::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

/// After an error work may still be enqueued that names memory, programs and bindings of this worker.
void Worker::empty_compute_queue() {
  if (end_ == nullptr || !workspace_) return;
  device_.queue(devices::QueueRole::kCompute)
      .clear(workspace_.view().part(0, 0), {}, {end_.get(), 1}, {"end", 0, 0, 0});
  const absl::Status ended = end_->wait(1, std::chrono::steady_clock::now() + std::chrono::minutes(1));
  if (ended.code() != absl::StatusCode::kDeadlineExceeded) return;
  // The device hangs. Should it ever go on, it must find that all of this was called off.
  end_->poison(absl::CancelledError("the run was stopped"));
  static_cast<void>(end_.release());
  static_cast<void>(compute_.release());
}

void Worker::begin() {
  const MutexLock lock(mutex_);
  ++jobs_;
  changed_.notify_all();
}

void Worker::wait_until_done() {
  const MutexLock lock(mutex_);
  while (!stopping_ && (jobs_fed_ < jobs_ || microbatches_retired_ < microbatches_fed_ ||
                        errands_done_ < errands_given_ || (!unified_ && jobs_prefetched_ < jobs_))) {
    changed_.wait(mutex_);
  }
}

}  // namespace rondo::schedule
