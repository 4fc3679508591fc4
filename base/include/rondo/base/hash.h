// A hash of contents: which bytes something was made from, and whether they are still the same.
//
// XXH3, 128 bits (Yann Collet's specification; the library xxhash): fast and well mixed, but no cryptographic hash. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace rondo {

class ContentHash {
 public:
  ContentHash();
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  ~ContentHash();

  void add(std::span<const std::byte> bytes);
  /// The text and its length, so that a sequence of texts tells where each ends.
  void add_text(std::string_view text);
  /// Of all that was added so far: 32 hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
