#include "token_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace rondo::data::tok {
namespace {

constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15U;

// Multiply and fold, eight bytes at a time: short keys are the rule.
std::uint64_t mix(std::uint64_t value) {
  value *= kMultiplier;
  return value ^ (value >> 32U);
}

std::uint32_t hash_bytes(std::string_view key) {
  std::uint64_t hash = key.size();
  std::size_t i = 0;
  for (; i + 8 <= key.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, key.data() + i, 8);
    hash = mix(hash ^ word);
  }
  std::uint64_t rest = 0;
  if (i < key.size()) std::memcpy(&rest, key.data() + i, key.size() - i);
  return static_cast<std::uint32_t>(mix(mix(hash ^ rest)));
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) | static_cast<std::uint32_t>(right);
}

}  // namespace

std::size_t TokenTable::slot_of(std::string_view key, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.size == kEmpty) return i;
    if (slot.hash == hash && slot.size == key.size() &&
        std::memcmp(bytes_.data() + slot.offset, key.data(), key.size()) == 0) {
      return i;
    }
  }
}

void TokenTable::insert(std::string_view key, std::uint32_t value) {
  const std::uint32_t hash = hash_bytes(key);
  Slot& slot = slots_[slot_of(key, hash)];
  if (slot.size != kEmpty) {
    slot.value = value;
    return;
  }
  slot = {hash, value, static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(key.size())};
  bytes_ += key;
  longest_ = std::max(longest_, key.size());
  if (++used_ * 2 > slots_.size()) grow();
}

void TokenTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  std::swap(old, slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.size == kEmpty) continue;
    std::size_t i = slot.hash & mask;
    while (slots_[i].size != kEmpty) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

std::optional<std::uint32_t> TokenTable::find(std::string_view key) const {
  if (key.size() > longest_) return std::nullopt;
  const Slot& slot = slots_[slot_of(key, hash_bytes(key))];
  if (slot.size == kEmpty) return std::nullopt;
  return slot.value;
}

MergeTable::MergeTable(std::size_t expected) : slots_(std::bit_ceil(expected * 2 + 2)) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = mix(key) & mask;; i = (i + 1) & mask) {
    if (slots_[i].key == key || slots_[i].key == kEmpty) return i;
  }
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

Merge MergeTable::find(TokenId left, TokenId right) const { return slots_[slot_of(pair_key(left, right))].merge; }

}  // namespace rondo::data::tok
