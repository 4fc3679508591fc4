#include "rondo/offload/activation_store.h"

#include <algorithm>

#include "rondo/base/status.h"

namespace rondo::offload {
namespace {

std::size_t rows_of(const ActivationStoreOptions& options) {
  return options.activation_cuts.size() + options.gradient_cuts.size();
}

std::size_t places_a_round(const ActivationStoreOptions& options) { return rows_of(options) * options.microbatches; }

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
  store->changed_.resize(rows_of(options));
  for (const std::vector<BoundaryPlace>& filled : options.fills) {
    std::vector<bool>& rows = store->fills_.emplace_back(rows_of(options));
    for (const BoundaryPlace& place : filled) rows[store->row_of(place)] = true;
  }
  store->expected_.resize(3 * store->fills_.size());
  return store;
}

std::size_t ActivationStore::row_of(const BoundaryPlace& place) const {
  const auto& cuts = place.kind == BoundaryKind::kActivation ? options_.activation_cuts : options_.gradient_cuts;
  const auto found = std::ranges::lower_bound(cuts, place.cut);
  const auto row = static_cast<std::size_t>(found - cuts.begin());
  return place.kind == BoundaryKind::kGradient ? options_.activation_cuts.size() + row : row;
}

std::size_t ActivationStore::index_of(const BoundaryPlace& place) const {
  const std::size_t row = row_of(place);
  return (place.round % options_.rounds) * places_a_round(options_) + row * options_.microbatches + place.microbatch;
}

std::vector<devices::BufferView> ActivationStore::memory() const {
  if (tier_ != nullptr) return {tier_->memory()};
  std::vector<devices::BufferView> views;
  for (const devices::Buffer& buffer : buffers_) views.push_back(buffer.view());
  return views;
}

devices::BufferView ActivationStore::view(const BoundaryPlace& place, Bytes size) const {
  const std::size_t index = index_of(place);
  return (tier_ != nullptr ? tier_->view(index) : buffers_[index].view()).part(0, size);
}

void ActivationStore::begin(std::uint64_t first_round, const std::vector<std::uint32_t>& microbatches, bool gradients) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < microbatches.size() && !expected_.empty(); ++i) {
    expected_[(first_round + i) % expected_.size()] = {first_round + i, i, microbatches[i], gradients};
  }
}

/// Whether the round that has this memory before `place` has it is still to take it.
bool ActivationStore::is_due_before(const BoundaryPlace& place) const {
  if (expected_.empty() || place.round < options_.rounds) return false;
  const std::uint64_t before = place.round - options_.rounds;
  const Expected& round = expected_[before % expected_.size()];
  if (round.round != before || place.microbatch >= round.microbatches) return false;
  if (place.kind == BoundaryKind::kGradient && !round.gradients) return false;
  return fills_[round.of_step][row_of(place)] && states_[index_of(place)].round < before;
}

absl::Status ActivationStore::reserve(const BoundaryPlace& place, Deadline deadline, Bytes size,
                                      const ReadOrder& order) {
  {
    const MutexLock lock(mutex_);
    State& state = states_[index_of(place)];
    while ((state.taken && state.round != place.round) || is_due_before(place)) {
      if (!error_.ok()) return error_;
      if (!changed_[row_of(place)].wait_until(mutex_, deadline)) {
        return absl::DeadlineExceededError(fmt::format("boundary {}: {} by round {}", place.cut,
                                                       state.taken ? "still held" : "not yet taken",
                                                       state.taken ? *state.round : place.round - options_.rounds));
      }
    }
    if (!error_.ok()) return error_;
    state = {place.round, true, false};
    changed_[row_of(place)].notify_all();
  }
  return tier_ == nullptr ? absl::OkStatus() : tier_->take(index_of(place), size, order, deadline);
}

void ActivationStore::publish(const BoundaryPlace& place) {
  if (tier_ != nullptr) tier_->filled(index_of(place));
  const MutexLock lock(mutex_);
  states_[index_of(place)].filled = true;
  changed_[row_of(place)].notify_all();
}

bool ActivationStore::was_published(const BoundaryPlace& place) const {
  const MutexLock lock(mutex_);
  const State& state = states_[index_of(place)];
  if (!state.round || *state.round < place.round) return false;
  return *state.round > place.round || state.filled || !state.taken;
}

absl::Status ActivationStore::hold(const BoundaryPlace& place, Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    const State& state = states_[index_of(place)];
    while (!(state.taken && state.round == place.round && state.filled)) {
      if (!error_.ok()) return error_;
      if (!changed_[row_of(place)].wait_until(mutex_, deadline) &&
          !(state.taken && state.round == place.round && state.filled)) {
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
  state.taken = state.filled = false;
  changed_[row_of(place)].notify_all();
}

void ActivationStore::fail(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (error_.ok()) error_ = error;
  if (tier_ != nullptr) tier_->fail(error);
  for (CondVar& row : changed_) row.notify_all();
}

void ActivationStore::close() {
  if (tier_ != nullptr) tier_->close();
}

void ActivationStore::reset() {
  const MutexLock lock(mutex_);
  std::ranges::fill(states_, State{});
  std::ranges::fill(expected_, Expected{});
  if (tier_ != nullptr) tier_->reset();
  error_ = absl::OkStatus();
}

}  // namespace rondo::offload
