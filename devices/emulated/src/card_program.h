// A program of a described card: what it computes (emulated cards) and how long that takes.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "rondo/devices/device.h"
#include "rondo/devices/profile.h"

namespace rondo::devices::emulated {

/// Immutable. The time of all ops but attention is summed when it is made; attention's follows from the sequences that
/// a run is bound to where the host can see them, else from the list's sequence_length.
class CardProgram final : public Program {
 public:
  /// `inner`: null on timed cards.
  CardProgram(const OpList& list, const ArenaLayout& layout, const DeviceProfile& profile,
              std::unique_ptr<Program> inner);

  const OpList& ops() const override { return list_; }
  const Program* inner() const { return inner_.get(); }
  /// Does not allocate.
  double seconds(const Bindings& bindings) const;
  /// Every tensor that an op names, and the scratch, is bound to enough memory of `owner`. Errors: Internal naming the
  /// tensor.
  absl::Status check(const Bindings& bindings, const void* owner) const;
  /// The first tensor written that is bound from outside.
  TensorId first_written() const;

 private:
  double attention_seconds(const Op& op, const Bindings& bindings) const;
  double op_seconds(const OpCost& cost, const Op& op) const;

  const std::unique_ptr<Program> inner_;
  const std::unique_ptr<const OpList> own_;  // on timed cards
  const OpList& list_;                       // the inner program's, else own_
  const Bytes scratch_bytes_;
  const DeviceProfile profile_;
  std::vector<TensorId> bound_;         // named by ops, not scratch
  std::vector<std::size_t> attention_;  // places of the ops whose time depends on the sequences
  double fixed_seconds_ = 0;            // of all others
};

/// Memory of a described card; host() is null on timed ones. The owner is the device.
class CardMemory : public Memory {
 public:
  CardMemory(Bytes size, std::byte* host, const void* owner) : Memory(size, host), owner_(owner) {}
  const void* owner() const { return owner_; }

 private:
  const void* const owner_;
};

/// Whether the view is of host memory that `owner` was told of, see Device::use_in_place().
bool is_in_place(const BufferView& view, const void* owner);
/// Whether the view lies within memory of `owner`.
bool is_own(const BufferView& view, const void* owner);

}  // namespace rondo::devices::emulated
