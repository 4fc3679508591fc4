// Where parameters live: weights as devices read them, and for trained ones the fp32 master and the optimizer's
// moments.
//
// A parameter is one thing however many layers use it (a tied head is the embedding). Version v of a parameter holds v
// optimizer updates; a layer's forward waits for the version of its step. Thread rule: publish() is called by the
// optimizer alone, after all readers of the version that it overwrites are done (the commit point sees to that);
// everything else is read-only after load. A store of two published versions keeps the weights of the update before the
// last beside the newest ones, so that a step may compute on them while the optimizer writes the others. Masters and
// moments of some parameters may lie on disk (disk_tier.h): then read() and write() reach them, and the spans do not
// exist.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/devices/device.h"
#include "rondo/offload/disk_tier.h"
#include "rondo/offload/packed_memory.h"

namespace rondo::offload {

using ParameterId = std::uint32_t;

struct ParameterSpec {
  std::string name;
  std::uint64_t elements = 0;
  bool trained = false;
  bool decays = true;                                      // weight decay applies
  devices::Encoding encoding = devices::Encoding::kPlain;  // of frozen ones: how they are kept and sent
  StateLayout state = {};                                  // of trained ones
  float rate_factor = 1;                                   // of the learning rate
  bool wide = false;                                       // published in fp32 whatever the compute dtype
  std::uint32_t group = 0;                                 // published ones of a group are neighbours in memory
};

/// What training keeps of a parameter beside its weights.
enum class StateArray : std::uint8_t { kMaster, kFirstMoment, kSecondMoment };

/// Trained parameters whose state lies on disk, in the order in which they are updated.
struct DiskPlacement {
  std::filesystem::path folder;
  std::vector<ParameterId> parameters;
};

class ParameterStore {
 public:
  /// `phantom`: the sizes count, the memory does not exist (pools that do no arithmetic).
  /// Errors: ResourceExhausted with the numbers; those of ScratchFile::make.
  static absl::StatusOr<ParameterStore> make(const std::vector<ParameterSpec>& parameters, devices::DType dtype,
                                             bool phantom, const DiskPlacement& disk = {},
                                             std::uint32_t published_versions = 1);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  devices::DType dtype() const { return dtype_; }
  /// In which it is published.
  devices::DType dtype_of(ParameterId id) const { return specs_[id].wide ? devices::DType::kFloat32 : dtype_; }
  bool phantom() const { return phantom_; }

  /// Of trained parameters: 1, or 2.
  std::uint32_t published_versions() const { return published_versions_; }
  /// The weights as devices read them: in the compute dtype, or encoded. The memory of version v is that of v - 2, and
  /// with one published version that of all.
  devices::BufferView published(ParameterId id, std::uint64_t version) const {
    const Entry& entry = entries_[id];
    return entry.other_published.memory != nullptr && version % 2 == 1 ? entry.other_published : entry.published;
  }
  /// The newest.
  devices::BufferView published(ParameterId id) const {
    return entries_[id].other_published.memory != nullptr ? published(id, version(id)) : entries_[id].published;
  }
  bool on_disk(ParameterId id) const { return entries_[id].disk_place >= 0; }
  /// Null without a disk, and with phantom memory.
  DiskTier* disk() { return disk_.get(); }

  /// Its array among those that the disk keeps of the parameter (disk_arrays()); -1 where it lies in memory or nowhere.
  std::int32_t disk_array(ParameterId id, StateArray which) const;

  /// A trained parameter's state, wherever it lies: its bytes from byte `first` on, a moment's as moment_bytes() lays
  /// it out. Errors: those of the disk. REQUIRES: no update under way.
  absl::Status read(ParameterId id, StateArray which, Bytes first, std::span<std::byte> to);
  /// Into fp32 state from element `first` on. A master is published too, as `version` (publish_from_master). REQUIRES:
  /// before the first update; parts of a master begin at multiples of 2^14.
  absl::Status write(ParameterId id, StateArray which, std::uint64_t first, std::span<const float> from,
                     std::uint64_t version = 0);
  /// Bytes of a moment of any format, whole, as moment_bytes() lays it out; 0: the parameter has none.
  Bytes moment_size(ParameterId id, StateArray which) const;
  absl::Status write_moment(ParameterId id, StateArray which, std::span<const std::byte> from);

  /// fp32; of trained parameters in memory only. Where the compute dtype is fp32 and one version is published, master
  /// and published are one.
  std::span<float> master(ParameterId id);
  std::span<float> first_moment(ParameterId id);
  std::span<float> second_moment(ParameterId id);
  /// The bytes of an array in memory, in its own format; empty: there is none.
  std::span<std::byte> state(ParameterId id, StateArray which);
  /// The same as memory to copy from and to.
  devices::BufferView state_view(ParameterId id, StateArray which) const;

  /// Rounds the master into the published weights; for use after a master was filled. `version` 0: to nearest, as other
  /// programs load. Later ones stochastically, from (id, version, element) alone: a step often moves a master by less
  /// than half of what 16 bits resolve, and rounding to nearest would hold the weights back.
  void publish_from_master(ParameterId id, std::uint64_t version);

  std::uint64_t version(ParameterId id) const;
  void set_version(ParameterId id, std::uint64_t version);
  void set_all_versions(std::uint64_t version);
  /// Blocks until `version` is there; the error that stopped the optimizer, or DeadlineExceeded.
  absl::Status wait_for_version(ParameterId id, std::uint64_t version,
                                std::chrono::steady_clock::time_point deadline) const;
  /// Ends all waits with `error`, until set_all_versions().
  void fail(const absl::Status& error);

 private:
  struct Entry {
    devices::BufferView published;
    devices::BufferView other_published;  // of odd versions, where two are published
    devices::Buffer master;               // none where published serves
    devices::Buffer first_moment;
    devices::Buffer second_moment;
    std::int32_t disk_place = -1;  // among the parameters of disk_
  };
  struct Versions {
    mutable Mutex mutex;
    mutable CondVar changed;
    std::vector<std::uint64_t> of ABSL_GUARDED_BY(mutex);
    absl::Status error ABSL_GUARDED_BY(mutex);
  };
  ParameterStore() = default;
  absl::Status place_on_disk(const DiskPlacement& disk);
  absl::Status place_published();
  void publish(ParameterId id, std::uint64_t first, std::span<const float> values, std::uint64_t version);
  MomentFormat format_of(ParameterId id, StateArray which) const;

  std::vector<ParameterSpec> specs_;
  devices::DType dtype_ = devices::DType::kFloat32;
  bool phantom_ = false;
  std::uint32_t published_versions_ = 1;
  std::vector<Entry> entries_;
  PackedMemory published_;
  PackedMemory other_published_;
  std::unique_ptr<DiskTier> disk_;
  std::unique_ptr<Versions> versions_;
};

}  // namespace rondo::offload
