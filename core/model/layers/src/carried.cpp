// See carried.h. The places of keys and values are zeros until a block lends its own: these are added.
#include "carried.h"

#include <algorithm>
#include <tuple>

namespace rondo::model {

CarriedWidths carried_widths(const ModelConfig& config) {
  CarriedWidths widths;
  widths.stream = config.hidden_size;
  if (config.block_inputs) widths.embedded = config.hidden_size;
  for (std::uint32_t block = 0; block < config.num_layers; ++block) {
    if (!shares_keys(config, block)) continue;
    const HeadShape heads = heads_of(config, block);
    const std::int64_t both = std::int64_t{2} * heads.kv_heads * heads.size;
    (config.sliding_window[block] != 0 ? widths.window_keys : widths.global_keys) = both;
  }
  return widths;
}

Carried::Carried(Recorder& recorder, const ModelConfig& config, TensorId arrived)
    : recorder_(recorder), config_(config), stream_(arrived) {
  const CarriedWidths widths = carried_widths(config);
  for (const Part part : {Part{Place::kEmbedded, widths.embedded}, Part{Place::kWindowKeys, widths.window_keys},
                          Part{Place::kGlobalKeys, widths.global_keys}}) {
    if (part.width > 0) places_.push_back(part);
  }
  if (places_.empty()) return;
  const std::int64_t tokens = recorder.tokens();
  std::tie(stream_, rest_) =
      recorder.parted(arrived, {tokens, widths.stream}, {tokens, widths.all() - widths.stream}, "x", "carried");
}

std::size_t Carried::index_of(Place place) const {
  const auto found = std::ranges::find(places_, place, &Part::place);
  return static_cast<std::size_t>(found - places_.begin());
}

Carried::Place Carried::place_of(std::uint32_t block) const {
  return config_.sliding_window[block] != 0 ? Place::kWindowKeys : Place::kGlobalKeys;
}

TensorId& Carried::part(Place place) {
  const std::size_t index = index_of(place);
  while (opened_.size() <= index) {
    const std::size_t next = opened_.size();
    if (next + 1 == places_.size()) {
      opened_.push_back(*rest_);
      rest_.reset();
      continue;
    }
    const std::int64_t width = places_[next].width;
    const std::int64_t behind = recorder_.columns(*rest_) - width;
    const auto [first, others] =
        recorder_.parted(*rest_, {recorder_.tokens(), width}, {recorder_.tokens(), behind}, "carried", "carried");
    opened_.push_back(first);
    rest_ = others;
  }
  return opened_[index];
}

Carried::Keys Carried::shared_keys(std::uint32_t block) {
  const HeadShape heads = heads_of(config_, block);
  const Shape shape = {recorder_.tokens(), heads.kv_heads, heads.size};
  const auto [k, v] = recorder_.parted(part(place_of(block)), shape, shape, "k", "v");
  return {k, v};
}

void Carried::lend(const Keys& keys, std::uint32_t block) {
  const Place place = place_of(block);
  TensorId& zeros = part(place);
  const TensorId both = recorder_.joined(keys.k, keys.v, places_[index_of(place)].width, "lent");
  zeros = recorder_.add(zeros, both, "keys_and_values");
}

TensorId Carried::with(TensorId stream) {
  if (places_.empty()) return stream;
  std::optional<TensorId> behind = rest_;
  std::int64_t width = behind ? recorder_.columns(*behind) : 0;
  for (std::size_t i = opened_.size(); i-- > 0;) {
    width += places_[i].width;
    behind = behind ? recorder_.joined(opened_[i], behind, width, "carried") : opened_[i];
  }
  return recorder_.joined(stream, behind, width + config_.hidden_size, "y");
}

TensorId record_first_carried(Recorder& recorder, TensorId embedded, const ModelConfig& config) {
  const CarriedWidths widths = carried_widths(config);
  if (widths.all() == widths.stream) return embedded;
  const std::optional<TensorId> again = widths.embedded > 0 ? std::optional(embedded) : std::nullopt;
  return recorder.joined(embedded, again, widths.all(), "carried");
}

TensorId record_stream(Recorder& recorder, TensorId carried, const ModelConfig& config) {
  const CarriedWidths widths = carried_widths(config);
  return widths.all() == widths.stream ? carried : recorder.joined(carried, {}, widths.stream, "stream");
}

}  // namespace rondo::model
