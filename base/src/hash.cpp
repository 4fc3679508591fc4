#include "rondo/base/hash.h"

#include <fmt/format.h>

#include <cstdint>
#define XXH_INLINE_ALL  // header only: nothing to link
#include <xxhash.h>

namespace rondo {

struct ContentHash::State {
  XXH3_state_t xxh;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;
ContentHash::~ContentHash() = default;

void ContentHash::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void ContentHash::add_text(std::string_view text) {
  const std::uint64_t size = text.size();
  XXH3_128bits_update(&state_->xxh, &size, sizeof(size));
  XXH3_128bits_update(&state_->xxh, text.data(), text.size());
}

std::string ContentHash::hex() const {
  const XXH128_hash_t digest = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace rondo
