// The state of what is trained, on the device that holds it: weights as programs read them, masters, moments and sums
// of gradients; and the programs that take the norm and update it.
//
// The parameter store stays the home: load() brings its state to the device, bring_home() takes it back, for
// checkpoints and before the device's memory is given up. In between the store's arrays are those of an earlier update.
// The bits are those that the host would compute. Thread rule: one caller, while no job is under way; views are for
// anyone.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "card_state_layout.h"
#include "rondo/devices/device.h"
#include "rondo/schedule/executor.h"
#include "slot_runner.h"

namespace rondo::schedule {

class CardState {
 public:
  /// Allocates and compiles. `parts` outlives it. REQUIRES: the optimizer is AdamW, its state in memory.
  /// Errors: ResourceExhausted, Unimplemented, as the device says.
  static absl::StatusOr<std::unique_ptr<CardState>> make(const ExecutorParts& parts, devices::Device& device);

  /// Of a trained parameter, all of its elements: what programs read, and its sum of gradients in fp32.
  devices::BufferView weights(model::ParameterId id) const;
  devices::BufferView sum(model::ParameterId id) const;
  /// Where a microbatch's rows of the lookup table's gradient are written; none where that is not trained.
  RowViews rows(std::uint32_t bucket) const;
  /// What then adds them to rows_sum(), which is to be zeros when a step's first microbatch does so.
  struct Bound {
    std::unique_ptr<devices::Program> program;
    devices::Bindings bindings;
  };
  const Bound& rows_addition(std::uint32_t bucket) const;
  devices::BufferView rows_sum() const;

  /// Brings what the store holds, unless it has come.
  absl::Status load();
  /// Ends the gradients of a step and takes their squares: by parameter, in the order of updates, summed up as
  /// GradientHome does.
  absl::Status take_squares(std::uint32_t step, std::vector<double>& squares);
  /// Begins an update, behind which the device does what comes after. `version`: how many there are with it.
  void begin_update(const devices::StepFactors& factors, std::uint32_t step, std::uint64_t version);
  /// Until everything that was begun has ended. Errors: the device's; Unavailable when it seems to hang. They stand.
  absl::Status wait();
  /// The store's state is as new as what lies here.
  bool at_home() const { return at_home_; }
  /// Takes masters and moments back to the store, unless they are there, and publishes its weights.
  absl::Status bring_home();

 private:
  CardState(const ExecutorParts& parts, devices::Device& device);
  absl::Status prepare();
  struct BoundList;
  absl::StatusOr<Bound> compile(BoundList bound);
  absl::Status compile_rows(std::uint32_t bucket);
  void add_update(BoundList& update, devices::TensorId factors, devices::TensorId keys, std::size_t chunk) const;
  /// What of a parameter lies in the store and here.
  struct Twins {
    devices::BufferView home;
    devices::BufferView here;
  };
  std::vector<Twins> arrays_of(const CardStateLayout::Entry& entry) const;
  devices::BufferView view(const CardStateLayout::Place& place) const {
    return memory_[place.block].view().part(place.offset, place.size);
  }
  devices::BufferView part(std::size_t chunk, CardStateLayout::Part part) const {
    return view(layout_.place(chunk, part));
  }
  devices::BufferView part(CardStateLayout::Shared shared) const { return view(layout_.place(shared)); }
  /// A chunk's share of what there is of every block.
  devices::BufferView part(CardStateLayout::Shared shared, const CardStateLayout::Chunk& chunk, Bytes of_block) const {
    return part(shared).part(chunk.first_block * of_block, chunk.blocks * of_block);
  }
  devices::BufferView elements_of(CardStateLayout::Part part, const CardStateLayout::Entry& entry, Bytes size) const;
  void clear(devices::BufferView view);
  void copy(devices::QueueRole role, devices::BufferView from, devices::BufferView to);
  void run(const Bound& bound, const char* name);

  const ExecutorParts& parts_;
  devices::Device& device_;
  const CardStateLayout layout_;
  const offload::GradientSpec* table_ = nullptr;  // of the lookup table, if that is trained
  std::vector<offload::GradientSpec> specs_;
  std::vector<std::size_t> index_;  // of a parameter's entry
  std::vector<devices::Buffer> memory_;
  devices::Buffer rows_;
  devices::Buffer host_factors_;  // and keys
  devices::Buffer host_squares_;
  // What load() brings, until it has come: a device that hangs may read them as long as it has its memory.
  devices::Buffer owners_;
  devices::Buffer of_codes_;  // their tables, and a block of the code of 0
  std::unique_ptr<devices::Timeline> timeline_;
  std::uint64_t value_ = 0;
  std::uint32_t step_ = 0;  // for traces
  Bound squares_;
  Bound update_;
  std::vector<std::pair<std::uint32_t, Bound>> add_rows_;  // by bucket
  Bound join_rows_;                                        // of a tied table, to its dense sum
  bool loaded_ = false;
  bool at_home_ = true;
  std::uint64_t version_ = 0;  // of what lies here, once it has been updated
  absl::Status failed_;
};

}  // namespace rondo::schedule
