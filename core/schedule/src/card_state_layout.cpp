#include "card_state_layout.h"

#include "rondo/devices/op.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {

CardStateLayout::CardStateLayout(const model::Architecture& model, const offload::OptimizerSettings& optimizer)
    : published_(model.method().dtype) {
  for (const model::ParameterId id : update_order(model)) {
    const std::uint64_t elements = model.parameters()[id].elements();
    const bool coded = offload::state_layout(optimizer, elements).first == offload::MomentFormat::kBlocks8;
    entries_.push_back({id, 0, elements, (elements + kBlock - 1) / kBlock, coded});
  }
  for (const bool coded : {true, false}) {
    for (Entry& entry : entries_) {
      if (entry.coded != coded) continue;
      entry.first = blocks_ * kBlock;
      blocks_ += entry.blocks;
    }
    if (coded) coded_blocks_ = blocks_;
  }
  const auto set = [&](Part part, Bytes size) {
    const auto i = static_cast<std::size_t>(part);
    offsets_[i] = bytes_;
    sizes_[i] = size;
    bytes_ += round_up(size, partition::kAlignment);
  };
  for (const Part part : {Part::kSums, Part::kMaster}) set(part, elements() * sizeof(float));
  for (const Part part : {Part::kFirst, Part::kSecond}) set(part, (blocks_ - coded_blocks_) * kBlock * sizeof(float));
  const std::uint64_t coded = coded_blocks_ * kBlock;
  for (const auto& [codes, scales] :
       {std::pair(Part::kFirstCodes, Part::kFirstScales), std::pair(Part::kSecondCodes, Part::kSecondScales)}) {
    set(codes, coded);
    set(scales, coded / devices::kMomentBlock * sizeof(float));
  }
  set(Part::kTables, coded > 0 ? sizeof(devices::MomentTables) : 0);
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
  Bytes changed = 0;
  for (const Part part : {Part::kMaster, Part::kFirst, Part::kSecond, Part::kFirstCodes, Part::kFirstScales,
                          Part::kSecondCodes, Part::kSecondScales}) {
    changed += size(part);
  }
  // Sums twice; masters and moments, read and written; rows cleared, read, and added to a part of the sums.
  return 2 * size(Part::kSums) + 2 * changed + size(Part::kPublished) + 4 * size(Part::kRows);
}

}  // namespace rondo::schedule
