#include "rondo/offload/activation_store.h"

#include <algorithm>

#include "rondo/base/status.h"

namespace rondo::offload {
namespace {

std::size_t places_a_round(const ActivationStoreOptions& options) {
  return (options.activation_cuts.size() + options.gradient_cuts.size()) * options.microbatches;
}

}  // namespace

Bytes ActivationStore::bytes_for(const ActivationStoreOptions& options) {
  if (options.buffers > 0) return disk_buffers_bytes(options.buffers, options.boundary_bytes);
  return places_a_round(options) * options.rounds * options.boundary_bytes;
}

absl::StatusOr<std::unique_ptr<ActivationStore>> ActivationStore::make(const ActivationStoreOptions& options) {
  auto store = std::unique_ptr<ActivationStore>(new ActivationStore(options));
  const std::size_t places = places_a_round(options) * options.rounds;
  if (options.buffers > 0) {
    BoundaryTierOptions tier;
    tier.folder = options.disk_folder;
    tier.pages = places;
    tier.page_bytes = options.boundary_bytes;
    tier.buffers = options.buffers;
    tier.phantom = options.phantom;
    tier.bandwidth = options.disk_bandwidth;
    RONDO_ASSIGN_OR_RETURN(store->tier_, BoundaryTier::make(tier));
  } else if (options.phantom) {
    for (std::size_t i = 0; i < places; ++i) store->buffers_.push_back(devices::phantom_host(options.boundary_bytes));
  } else {
    for (std::size_t i = 0; i < places; ++i) {
      RONDO_ASSIGN_OR_RETURN(devices::Buffer buffer, devices::allocate_host(options.boundary_bytes, "boundaries"));
      store->buffers_.push_back(std::move(buffer));
    }
  }
  const MutexLock lock(store->mutex_);
  store->states_.resize(places);
  return store;
}

std::size_t ActivationStore::index_of(const BoundaryPlace& place) const {
  const auto& cuts = place.kind == BoundaryKind::kActivation ? options_.activation_cuts : options_.gradient_cuts;
  const auto found = std::ranges::lower_bound(cuts, place.cut);
  std::size_t row = static_cast<std::size_t>(found - cuts.begin());
  if (place.kind == BoundaryKind::kGradient) row += options_.activation_cuts.size();
  return (place.round % options_.rounds) * places_a_round(options_) + row * options_.microbatches + place.microbatch;
}

devices::BufferView ActivationStore::view(const BoundaryPlace& place, Bytes size) const {
  const std::size_t index = index_of(place);
  return (tier_ != nullptr ? tier_->view(index) : buffers_[index].view()).part(0, size);
}

absl::Status ActivationStore::reserve(const BoundaryPlace& place, Deadline deadline, Bytes size,
                                      const ReadOrder& order) {
  {
    const MutexLock lock(mutex_);
    State& state = states_[index_of(place)];
    while (state.taken && state.round != place.round) {
      if (!error_.ok()) return error_;
      if (!changed_.wait_until(mutex_, deadline)) {
        return absl::DeadlineExceededError(fmt::format("boundary {}: still held by round {}", place.cut, state.round));
      }
    }
    if (!error_.ok()) return error_;
    state = {place.round, true, false};
  }
  return tier_ == nullptr ? absl::OkStatus() : tier_->take(index_of(place), size, order, deadline);
}

void ActivationStore::publish(const BoundaryPlace& place) {
  if (tier_ != nullptr) tier_->filled(index_of(place));
  const MutexLock lock(mutex_);
  states_[index_of(place)].filled = true;
  changed_.notify_all();
}

bool ActivationStore::available(const BoundaryPlace& place) const {
  const MutexLock lock(mutex_);
  const State& state = states_[index_of(place)];
  return state.taken && state.round == place.round && state.filled;
}

absl::Status ActivationStore::hold(const BoundaryPlace& place, Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    const State& state = states_[index_of(place)];
    while (!(state.taken && state.round == place.round && state.filled)) {
      if (!error_.ok()) return error_;
      if (!changed_.wait_until(mutex_, deadline) && !(state.taken && state.round == place.round && state.filled)) {
        return absl::DeadlineExceededError(
            fmt::format("boundary {} of microbatch {} did not come in time", place.cut, place.microbatch));
      }
    }
  }
  return tier_ == nullptr ? absl::OkStatus() : tier_->hold(index_of(place), deadline);
}

void ActivationStore::let_go(const BoundaryPlace& place) {
  if (tier_ != nullptr) tier_->let_go(index_of(place));
}

void ActivationStore::release(const BoundaryPlace& place) {
  const MutexLock lock(mutex_);
  State& state = states_[index_of(place)];
  if (!state.taken || state.round != place.round) return;
  if (tier_ != nullptr) tier_->drop(index_of(place));
  state = {};
  changed_.notify_all();
}

void ActivationStore::fail(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (error_.ok()) error_ = error;
  if (tier_ != nullptr) tier_->fail(error);
  changed_.notify_all();
}

void ActivationStore::close() {
  if (tier_ != nullptr) tier_->close();
}

void ActivationStore::reset() {
  const MutexLock lock(mutex_);
  std::ranges::fill(states_, State{});
  if (tier_ != nullptr) tier_->reset();
  error_ = absl::OkStatus();
}

}  // namespace rondo::offload
