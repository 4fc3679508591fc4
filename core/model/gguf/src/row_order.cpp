// See row_order.h.
#include "row_order.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "architectures.h"

namespace rondo::gguf {
namespace {

bool is_of(const std::string& name, std::string_view module) { return name.find(module) != std::string::npos; }

bool rotates_neighbours(const model::ModelConfig& config) {
  constexpr std::array<std::string_view, 11> kArchitectures = {"llama",        "chatglm",    "arcee",        "ernie4_5",
                                                               "ernie4_5-moe", "glm4",       "mistral3",     "smollm3",
                                                               "granite",      "granitemoe", "granitehybrid"};
  return std::ranges::count(kArchitectures, architecture_name(config)) > 0;
}

/// Of value heads of `width` places each.
Order order_of_values(const model::ModelConfig& config, std::uint64_t kept, std::uint64_t width) {
  const model::LinearAttentionConfig& linear = *config.linear_attention;
  const std::uint32_t repeats = linear.value_heads / linear.key_heads;
  if (repeats == 1) return {};
  return {.kept = kept, .stretches = 1, .outer = linear.key_heads, .inner = repeats, .width = width};
}

bool orders_values(const model::ModelConfig& config, const std::string& name) {
  return config.linear_attention && !config.linear_attention->joined_by_heads && is_of(name, ".linear_attn.");
}

/// A place in the part that is moved: where in [rows][columns][width].
struct Within {
  std::uint64_t row = 0;
  std::uint64_t column = 0;
  std::uint64_t rest = 0;
};

Within find_within(std::uint64_t place, const Order& order, std::uint64_t columns) {
  return {place / order.width / columns, place / order.width % columns, place % order.width};
}

/// The stretch that holds a place: where it begins and how long it is.
struct Stretch {
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
};

Stretch find_stretch(std::uint64_t place, std::uint64_t places, const Order& order) {
  const std::uint64_t length = (places - order.kept) / order.stretches;
  return {place - (place - order.kept) % length, length};
}

}  // namespace

Order order_of_rows(const model::ModelConfig& config, const std::string& name) {
  if (orders_values(config, name)) {
    const std::uint64_t size = config.linear_attention->value_size;
    const std::uint64_t keys = 2ULL * config.linear_attention->key_width();  // queries and keys, in front of the values
    if (is_of(name, ".in_proj_qkv.") || is_of(name, ".conv1d.")) return order_of_values(config, keys, size);
    if (is_of(name, ".in_proj_z.")) return order_of_values(config, 0, size);
    const bool one_a_head = is_of(name, ".in_proj_b.") || is_of(name, ".in_proj_a.") || name.ends_with(".A_log") ||
                            name.ends_with(".dt_bias");
    return one_a_head ? order_of_values(config, 0, 1) : Order{};
  }
  const std::uint64_t half = model::turned_channels(config, config.rope) / 2;
  if (config.latent_attention) {
    const bool of_query = is_of(name, ".q_proj.") || is_of(name, ".q_b_proj.");
    if (of_query) return {.stretches = config.num_heads, .outer = 2, .inner = half, .come_last = true};
    if (!is_of(name, ".kv_a_proj_with_mqa.")) return {};
    return {.kept = config.latent_attention->rank, .stretches = 1, .outer = 2, .inner = half};
  }
  if (!rotates_neighbours(config)) return {};
  if (is_of(name, ".q_proj.")) return {.stretches = config.num_heads, .outer = 2, .inner = half};
  if (is_of(name, ".k_proj.")) return {.stretches = config.num_kv_heads, .outer = 2, .inner = half};
  return {};
}

Order order_of_columns(const model::ModelConfig& config, const std::string& name) {
  if (!orders_values(config, name) || !is_of(name, ".out_proj.")) return {};
  return order_of_values(config, 0, config.linear_attention->value_size);
}

bool suits(const Order& order, std::uint64_t places) {
  if (!order.changes()) return true;
  if (places < order.kept || (places - order.kept) % order.stretches != 0) return false;
  return (places - order.kept) / order.stretches >= order.moved();
}

std::uint64_t source_place(std::uint64_t place, std::uint64_t places, const Order& order) {
  if (!order.changes() || place < order.kept) return place;
  const auto [begin, length] = find_stretch(place, places, order);
  const std::uint64_t others = order.come_last ? length - order.moved() : 0;  // in front of what is moved
  const std::uint64_t within = place - begin;
  if (within < others) return place + order.moved();
  if (within - others >= order.moved()) return place;
  const Within at = find_within(within - others, order, order.outer);
  return begin + (at.column * order.inner + at.row) * order.width + at.rest;
}

std::uint64_t stored_place(std::uint64_t place, std::uint64_t places, const Order& order) {
  if (!order.changes() || place < order.kept) return place;
  const auto [begin, length] = find_stretch(place, places, order);
  const std::uint64_t others = order.come_last ? length - order.moved() : 0;
  const std::uint64_t within = place - begin;
  if (within >= order.moved()) return order.come_last ? place - order.moved() : place;
  const Within at = find_within(within, order, order.inner);
  return begin + others + (at.column * order.outer + at.row) * order.width + at.rest;
}

}  // namespace rondo::gguf
