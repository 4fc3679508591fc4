#include "rondo/offload/parameter_store.h"

#include <algorithm>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/devices/update.h"

namespace rondo::offload {
namespace {

std::span<float> floats_of(devices::BufferView view) {
  return {reinterpret_cast<float*>(view.host()), view.size / sizeof(float)};
}

}  // namespace

absl::StatusOr<ParameterStore> ParameterStore::make(const std::vector<ParameterSpec>& parameters, devices::DType dtype,
                                                    bool phantom, const DiskPlacement& disk,
                                                    std::uint32_t published_versions) {
  ParameterStore store;
  store.specs_ = parameters;
  store.dtype_ = dtype;
  store.phantom_ = phantom;
  store.published_versions_ = published_versions;
  store.entries_.resize(parameters.size());
  store.versions_ = std::make_unique<Versions>();
  {
    const MutexLock lock(store.versions_->mutex);
    store.versions_->of.assign(parameters.size(), 0);
  }
  RONDO_RETURN_IF_ERROR(store.place_on_disk(disk));
  RONDO_RETURN_IF_ERROR(store.place_published());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::uint64_t n = parameters[i].elements;
    Entry& entry = store.entries_[i];
    if (!parameters[i].trained) continue;
    const bool is_own_master = dtype == devices::DType::kFloat32 && published_versions == 1;
    const bool master_on_disk = dtype != devices::DType::kFloat32 && entry.disk_place >= 0;
    if (!is_own_master && !master_on_disk) {
      RONDO_ASSIGN_OR_RETURN(entry.master, devices::allocate_host_unless(
                                               phantom, n * sizeof(float),
                                               dtype == devices::DType::kFloat32 ? "weights" : "master weights"));
    }
    if (entry.disk_place >= 0) continue;
    const auto moments = [&](MomentFormat format) {
      return devices::allocate_host_unless(phantom, moment_bytes(format, n), "optimizer moments");
    };
    const StateLayout& state = parameters[i].state;
    if (state.first != MomentFormat::kNone) {
      RONDO_ASSIGN_OR_RETURN(entry.first_moment, moments(state.first));
    }
    if (state.second != MomentFormat::kNone) {
      RONDO_ASSIGN_OR_RETURN(entry.second_moment, moments(state.second));
    }
  }
  return store;
}

absl::Status ParameterStore::place_on_disk(const DiskPlacement& disk) {
  if (disk.parameters.empty()) return absl::OkStatus();
  DiskTierOptions options;
  options.folder = disk.folder;
  for (const ParameterId id : disk.parameters) {
    entries_[id].disk_place = static_cast<std::int32_t>(options.elements.size());
    options.elements.push_back(specs_[id].elements);
    options.arrays.push_back(disk_arrays(specs_[id].state, dtype_ != devices::DType::kFloat32));
  }
  if (phantom_) return absl::OkStatus();
  RONDO_ASSIGN_OR_RETURN(disk_, DiskTier::make(options));
  return absl::OkStatus();
}

absl::Status ParameterStore::place_published() {
  for (ParameterId id = 0; id < specs_.size(); ++id) {
    const ParameterSpec& spec = specs_[id];
    const bool encoded = spec.encoding != devices::Encoding::kPlain;
    const Bytes size = encoded ? devices::encoded_bytes(spec.encoding, static_cast<std::int64_t>(spec.elements))
                               : spec.elements * devices::size_of(dtype_of(id));
    published_.add(spec.group, size);
    if (spec.trained && published_versions_ > 1) other_published_.add(spec.group, size);
  }
  RONDO_RETURN_IF_ERROR(published_.allocate("weights", phantom_));
  RONDO_RETURN_IF_ERROR(other_published_.allocate("weights", phantom_));
  std::size_t others = 0;
  for (ParameterId id = 0; id < specs_.size(); ++id) {
    entries_[id].published = published_.view(id);
    if (specs_[id].trained && published_versions_ > 1) entries_[id].other_published = other_published_.view(others++);
  }
  return absl::OkStatus();
}

MomentFormat ParameterStore::format_of(ParameterId id, StateArray which) const {
  if (which == StateArray::kMaster) return MomentFormat::kFloat32;
  return which == StateArray::kFirstMoment ? specs_[id].state.first : specs_[id].state.second;
}

std::int32_t ParameterStore::disk_array(ParameterId id, StateArray which) const {
  if (!on_disk(id) || format_of(id, which) == MomentFormat::kNone) return -1;
  const std::int32_t masters = dtype_ == devices::DType::kFloat32 ? 0 : 1;
  switch (which) {
    case StateArray::kMaster:
      return masters - 1;
    case StateArray::kFirstMoment:
      return masters;
    case StateArray::kSecondMoment:
      return masters + (specs_[id].state.first == MomentFormat::kNone ? 0 : 1);
  }
  return -1;
}

devices::BufferView ParameterStore::state_view(ParameterId id, StateArray which) const {
  const Entry& entry = entries_[id];
  const devices::Buffer& moment = which == StateArray::kFirstMoment ? entry.first_moment : entry.second_moment;
  const devices::BufferView master = entry.master ? entry.master.view() : entry.published;
  return which == StateArray::kMaster ? master : moment.view();
}

std::span<std::byte> ParameterStore::state(ParameterId id, StateArray which) {
  const devices::BufferView view = state_view(id, which);
  if (view.memory == nullptr) return {};
  return {view.host(), view.size};
}

Bytes ParameterStore::moment_size(ParameterId id, StateArray which) const {
  return moment_bytes(format_of(id, which), specs_[id].elements);
}

absl::Status ParameterStore::write_moment(ParameterId id, StateArray which, std::span<const std::byte> from) {
  if (const std::int32_t array = disk_array(id, which); array >= 0) {
    return disk_->write_whole(static_cast<std::size_t>(entries_[id].disk_place), static_cast<std::uint32_t>(array),
                              from);
  }
  if (!from.empty()) std::memcpy(state(id, which).data(), from.data(), from.size());
  return absl::OkStatus();
}

absl::Status ParameterStore::read(ParameterId id, StateArray which, Bytes first, std::span<std::byte> to) {
  if (const std::int32_t array = disk_array(id, which); array >= 0) {
    return disk_->read(static_cast<std::size_t>(entries_[id].disk_place), static_cast<std::uint32_t>(array), first, to);
  }
  if (!to.empty()) std::memcpy(to.data(), state(id, which).data() + first, to.size());
  return absl::OkStatus();
}

absl::Status ParameterStore::write(ParameterId id, StateArray which, std::uint64_t first, std::span<const float> from,
                                   std::uint64_t version) {
  const std::int32_t array = disk_array(id, which);
  if (array >= 0) {
    RONDO_RETURN_IF_ERROR(disk_->write(static_cast<std::size_t>(entries_[id].disk_place),
                                       static_cast<std::uint32_t>(array), first, from));
  } else {
    std::memcpy(state(id, which).data() + first * sizeof(float), from.data(), from.size_bytes());
  }
  if (which == StateArray::kMaster && (dtype_ != devices::DType::kFloat32 || entries_[id].master)) {
    publish(id, first, from, version);
  }
  return absl::OkStatus();
}

std::span<float> ParameterStore::master(ParameterId id) {
  return floats_of(entries_[id].master ? entries_[id].master.view() : entries_[id].published);
}
std::span<float> ParameterStore::first_moment(ParameterId id) { return floats_of(entries_[id].first_moment.view()); }
std::span<float> ParameterStore::second_moment(ParameterId id) { return floats_of(entries_[id].second_moment.view()); }

void ParameterStore::publish_from_master(ParameterId id, std::uint64_t version) {
  if (entries_[id].master) publish(id, 0, master(id), version);
}

void ParameterStore::publish(ParameterId id, std::uint64_t first, std::span<const float> values,
                             std::uint64_t version) {
  if (dtype_of(id) == devices::DType::kFloat32) {
    std::memcpy(published(id, version).host() + first * sizeof(float), values.data(), values.size_bytes());
    return;
  }
  auto* to = reinterpret_cast<std::uint16_t*>(published(id, version).host()) + first;
  if (version == 0) {
    devices::round_to_nearest(values.data(), devices::narrow_of(dtype_of(id)), to, values.size());
    return;
  }
  using devices::kUpdateBlock;
  const std::uint64_t key = devices::version_key(id, version);
  const std::size_t first_block = static_cast<std::size_t>(first) / kUpdateBlock;
  for (std::size_t begin = 0; begin < values.size(); begin += kUpdateBlock) {
    const std::size_t n = std::min(kUpdateBlock, values.size() - begin);
    devices::round_stochastically(values.data() + begin, devices::narrow_of(dtype_of(id)), to + begin, n,
                                  devices::rounding_key(key, first_block + begin / kUpdateBlock));
  }
}

std::uint64_t ParameterStore::version(ParameterId id) const {
  const MutexLock lock(versions_->mutex);
  return versions_->of[id];
}

void ParameterStore::set_version(ParameterId id, std::uint64_t version) {
  const MutexLock lock(versions_->mutex);
  versions_->of[id] = version;
  versions_->changed.notify_all();
}

void ParameterStore::set_all_versions(std::uint64_t version) {
  const MutexLock lock(versions_->mutex);
  versions_->of.assign(versions_->of.size(), version);
  versions_->error = absl::OkStatus();
  versions_->changed.notify_all();
}

absl::Status ParameterStore::wait_for_version(ParameterId id, std::uint64_t version,
                                              std::chrono::steady_clock::time_point deadline) const {
  const MutexLock lock(versions_->mutex);
  while (versions_->of[id] < version) {
    if (!versions_->error.ok()) return versions_->error;
    if (!versions_->changed.wait_until(versions_->mutex, deadline) && versions_->of[id] < version) {
      return absl::DeadlineExceededError(fmt::format("{}: no update {} in time", specs_[id].name, version));
    }
  }
  return absl::OkStatus();
}

void ParameterStore::fail(const absl::Status& error) {
  const MutexLock lock(versions_->mutex);
  if (versions_->error.ok()) versions_->error = error;
  versions_->changed.notify_all();
}

}  // namespace rondo::offload
