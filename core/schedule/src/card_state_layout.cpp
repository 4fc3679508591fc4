#include "card_state_layout.h"

#include <algorithm>
#include <numeric>

#include "rondo/devices/op.h"
#include "rondo/partition/layout.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {
namespace {

using devices::kMomentBlock;

/// Of one array: kernels count elements in 32 bits, of which cards may take one for the sign.
constexpr Bytes kMostOfArray = Bytes{4} << 30U;
static_assert(CardStateLayout::kBlock * sizeof(std::uint16_t) % partition::kAlignment == 0 &&
                  CardStateLayout::kBlock / kMomentBlock * sizeof(float) % partition::kAlignment == 0,
              "arrays of a chunk take what they have, however many chunks there are");

}  // namespace

CardStateLayout::CardStateLayout(const model::Architecture& model, const offload::OptimizerSettings& optimizer,
                                 Bytes most_at_once)
    : published_(model.method().dtype) {
  share_out(model, optimizer, most_at_once);
  parts_.resize(chunks_.size());
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const std::uint64_t n = chunks_[i].elements();
    const std::uint64_t coded = chunks_[i].coded ? n : 0;
    const auto set = [&](Part part, Bytes size) {
      place(parts_[i][static_cast<std::size_t>(part)], size, most_at_once);
    };
    for (const Part part : {Part::kSums, Part::kMaster}) set(part, n * sizeof(float));
    for (const Part part : {Part::kFirst, Part::kSecond}) set(part, (n - coded) * sizeof(float));
    for (const Part part : {Part::kFirstCodes, Part::kSecondCodes}) set(part, coded);
    for (const Part part : {Part::kFirstScales, Part::kSecondScales}) set(part, coded / kMomentBlock * sizeof(float));
    set(Part::kPublished, publishes() ? n * devices::size_of(published_) : 0);
  }
  const auto set = [&](Shared shared, Bytes size) {
    place(shared_[static_cast<std::size_t>(shared)], size, most_at_once);
  };
  set(Shared::kTables, std::ranges::any_of(chunks_, &Chunk::coded) ? sizeof(devices::MomentTables) : 0);
  set(Shared::kFactors, keys_offset() + entries_.size() * sizeof(std::uint64_t));
  set(Shared::kOwners, blocks_ * 2 * sizeof(std::int32_t));
  set(Shared::kSquares, blocks_ * sizeof(double));
  Bytes rows = 0;
  for (const offload::GradientSpec& spec : gradient_specs(model)) {
    if (spec.dense && spec.sparse) rows += spec.elements * sizeof(float);
  }
  set(Shared::kRows, rows);
}

/// Parameters to chunks: those whose moments are codes first.
void CardStateLayout::share_out(const model::Architecture& model, const offload::OptimizerSettings& optimizer,
                                Bytes most_at_once) {
  std::vector<bool> coded;
  for (const model::ParameterId id : update_order(model)) {
    const std::uint64_t elements = model.parameters()[id].elements();
    entries_.push_back({.id = id, .elements = elements, .blocks = (elements + kBlock - 1) / kBlock});
    coded.push_back(offload::state_layout(optimizer, elements).first == offload::MomentFormat::kBlocks8);
  }
  const std::uint64_t most = std::min(most_at_once, kMostOfArray) / sizeof(float) / kBlock;
  for (const bool which : {true, false}) {
    bool begin = true;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (coded[i] != which) continue;
      Entry& entry = entries_[i];
      if (begin || chunks_.back().blocks + entry.blocks > most) chunks_.push_back({which, blocks_, 0});
      begin = false;
      Chunk& chunk = chunks_.back();
      entry.chunk = chunks_.size() - 1;
      entry.first = chunk.elements();
      entry.first_block = blocks_;
      chunk.blocks += entry.blocks;
      blocks_ += entry.blocks;
      largest_ = std::max(largest_, entry.blocks * kBlock * sizeof(float));
    }
  }
}

void CardStateLayout::place(Place& place, Bytes size, Bytes most_at_once) {
  const Bytes taken = round_up(size, partition::kAlignment);
  if (memory_.empty() || (memory_.back() > 0 && taken > most_at_once - std::min(memory_.back(), most_at_once))) {
    memory_.push_back(0);
  }
  place = {memory_.size() - 1, memory_.back(), size};
  memory_.back() += taken;
}

Bytes CardStateLayout::bytes() const { return std::accumulate(memory_.begin(), memory_.end(), Bytes{0}); }

Bytes CardStateLayout::update_bytes() const {
  Bytes sums = 0;
  Bytes changed = 0;
  Bytes published = 0;
  for (const auto& parts : parts_) {
    for (std::size_t i = 0; i < kParts; ++i) {
      const auto part = static_cast<Part>(i);
      (part == Part::kSums ? sums : part == Part::kPublished ? published : changed) += parts[i].size;
    }
  }
  // Sums twice; masters and moments, read and written; rows cleared, read, and added to a part of the sums.
  return 2 * sums + 2 * changed + published + 4 * place(Shared::kRows).size;
}

Bytes CardStateLayout::host_bytes() const {
  const Bytes tables = place(Shared::kTables).size;
  return place(Shared::kFactors).size + place(Shared::kOwners).size + place(Shared::kSquares).size +
         (tables > 0 ? tables + kMomentBlock : 0);
}

}  // namespace rondo::schedule
