// Hash tables made for tokenizing: byte strings to numbers, and pairs of ids to merges.
//
// Filled once while loading, then only read: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/tokenizer.h"

namespace rondo::data::tok {

/// Byte strings and a number for each: open addressing over one store of bytes.
class TokenTable {
 public:
  /// Adds `key`, or gives it another value if it is there.
  void insert(std::string_view key, std::uint32_t value);
  std::optional<std::uint32_t> find(std::string_view key) const;
  std::size_t size() const { return used_; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t value = 0;
    std::uint32_t offset = 0;
    std::uint32_t size = kEmpty;
  };
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFF;
  std::size_t slot_of(std::string_view key, std::uint32_t hash) const;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::string bytes_;
  std::size_t used_ = 0;
  std::size_t longest_ = 0;
};

struct Merge {
  std::uint32_t rank = kNone;
  TokenId id = 0;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
};

/// Which token two tokens merge into, and how early.
class MergeTable {
 public:
  explicit MergeTable(std::size_t expected = 0);
  void insert(TokenId left, TokenId right, Merge merge);
  /// rank kNone when the two do not merge.
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;
};

}  // namespace rondo::data::tok
