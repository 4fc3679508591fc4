// Compiled programs of one device, by layer class, phase, what is kept, and bucket. Filled before the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"
#include "rondo/model/architecture.h"

namespace rondo::schedule {

class ProgramCache {
 public:
  /// `sequence_length`: of the longest sequence, for devices that derive their time from the ops' costs.
  ProgramCache(devices::Device& device, const model::Architecture& model, std::uint32_t sequence_length)
      : device_(device), model_(model), sequence_length_(sequence_length) {}

  /// Compiles unless it is there. Errors: those of Device::compile.
  absl::StatusOr<const devices::Program*> prepare(model::LayerIndex layer, model::Phase phase, model::Keep keep,
                                                  std::uint32_t bucket);
  /// REQUIRES: prepared.
  const devices::Program& get(model::LayerIndex layer, model::Phase phase, model::Keep keep,
                              std::uint32_t bucket) const;

 private:
  using Key = std::tuple<std::uint32_t, model::Phase, model::Keep, std::uint32_t>;
  Key key_of(model::LayerIndex layer, model::Phase phase, model::Keep keep, std::uint32_t bucket) const {
    return {model_.layers()[layer].program_class, phase, keep, bucket};
  }

  devices::Device& device_;
  const model::Architecture& model_;
  const std::uint32_t sequence_length_;
  std::map<Key, std::unique_ptr<devices::Program>> programs_;
};

}  // namespace rondo::schedule
