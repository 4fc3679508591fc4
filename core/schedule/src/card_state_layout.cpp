#include "card_state_layout.h"

#include "rondo/devices/op.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {

CardStateLayout::CardStateLayout(const model::Architecture& model) : published_(model.method().dtype) {
  for (const model::ParameterId id : update_order(model)) {
    const std::uint64_t elements = model.parameters()[id].elements();
    entries_.push_back({id, blocks_ * kBlock, elements, (elements + kBlock - 1) / kBlock});
    blocks_ += entries_.back().blocks;
  }
  const auto set = [&](Part part, Bytes size) {
    const auto i = static_cast<std::size_t>(part);
    offsets_[i] = bytes_;
    sizes_[i] = size;
    bytes_ += round_up(size, partition::kAlignment);
  };
  for (const Part part : {Part::kSums, Part::kMaster, Part::kFirst, Part::kSecond})
    set(part, elements() * sizeof(float));
  set(Part::kPublished, publishes() ? elements() * devices::size_of(published_) : 0);
  set(Part::kFactors, entries_.size() * devices::kUpdateFactors * sizeof(float));
  set(Part::kKeys, entries_.size() * sizeof(std::uint64_t));
  set(Part::kOwners, blocks_ * 2 * sizeof(std::int32_t));
  set(Part::kSquares, blocks_ * sizeof(double));
  Bytes rows = 0;
  for (const offload::GradientSpec& spec : gradient_specs(model)) {
    if (spec.dense && spec.sparse) rows += spec.elements * sizeof(float);
  }
  set(Part::kRows, rows);
}

Bytes CardStateLayout::update_bytes() const {
  const Bytes flat = elements() * sizeof(float);
  // Sums twice; masters and moments, read and written; rows cleared, read, and added to a part of the sums.
  return 2 * flat + 6 * flat + size(Part::kPublished) + 4 * size(Part::kRows);
}

}  // namespace rondo::schedule
