// Behind block.h.
#include "block.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "context.h"
#include "rondo/base/status.h"

namespace rondo::devices::vulkan {

absl::StatusOr<Block> Block::make(std::shared_ptr<Context> context, Bytes size, Kind kind) {
  SharedBlock* const gathered = kind == Kind::kStaging ? nullptr : context->gathered_.get();
  const Bytes rounded = round_up(std::max<Bytes>(size, 1), 64);
  if (gathered != nullptr) {
    const std::optional<Bytes> begin = gathered->pieces.take(rounded);
    if (begin) return piece_of(std::move(context), *gathered, *begin, rounded, kind);
    return resource_exhausted("{}: no gap of {} ({} bytes) is left in its {} bytes of memory", context->name(),
                              format_bytes(size), size, gathered->driver.size);
  }
  Block block;
  block.context_ = std::move(context);
  block.size_ = rounded;
  RONDO_RETURN_IF_ERROR(block.context_->make_block(rounded, kind, block.driver_));
  block.make_resident(kind);
  return block;
}

absl::StatusOr<Block> Block::make_small(std::shared_ptr<Context> context, Bytes size, Kind kind) {
  const bool gathered = kind != Kind::kStaging && context->gathered_ != nullptr;
  if (gathered || size > SmallBlocks::kLargest) return make(std::move(context), size, kind);
  const Bytes rounded = round_up(std::max<Bytes>(size, 1), 64);
  SmallBlocks& small = kind == Kind::kStaging ? context->small_staging_ : context->small_device_;
  RONDO_ASSIGN_OR_RETURN(const SmallBlocks::Piece piece, small.take(*context, rounded));
  return piece_of(std::move(context), *piece.of, piece.begin, rounded, kind);
}

Block Block::piece_of(std::shared_ptr<Context> context, SharedBlock& shared, Bytes begin, Bytes size, Kind kind) {
  Block block;
  block.context_ = std::move(context);
  block.driver_ = shared.driver;
  block.shared_ = &shared;
  block.begin_ = begin;
  block.size_ = size;
  block.make_resident(kind);
  return block;
}

void Block::make_resident(Kind kind) {
  if (context_->memory_in_process() && kind != Kind::kTexels && host() != nullptr) std::memset(host(), 0, size_);
}

Block& Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::move(other.context_);
  driver_ = std::exchange(other.driver_, {});
  shared_ = std::exchange(other.shared_, nullptr);
  begin_ = std::exchange(other.begin_, 0);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void Block::release() {
  if (context_ == nullptr) return;
  if (shared_ == nullptr) {
    context_->free_block(driver_);
  } else if (shared_->of == nullptr) {
    shared_->pieces.give_back(begin_, size_);
  } else {
    shared_->of->give_back(*context_, *shared_, begin_, size_);
  }
  context_.reset();
}

absl::StatusOr<SmallBlocks::Piece> SmallBlocks::take(Context& context, Bytes size) {
  const MutexLock lock(mutex_);
  for (const auto& shared : shared_) {
    if (const std::optional<Bytes> begin = shared->pieces.take(size); begin) return Piece{shared.get(), *begin};
  }
  DriverBlock block;
  if (const absl::Status made = context.make_block(kTogether, kind_, block); !made.ok()) {
    context.free_block(block);
    return made;
  }
  SharedBlock& added = *shared_.emplace_back(std::make_unique<SharedBlock>(block, this));
  return Piece{&added, added.pieces.take(size).value_or(0)};
}

void SmallBlocks::give_back(Context& context, SharedBlock& of, Bytes begin, Bytes size) {
  const MutexLock lock(mutex_);
  of.pieces.give_back(begin, size);
  if (shared_.size() == 1 || of.pieces.taken() > 0) return;
  context.free_block(of.driver);
  std::erase_if(shared_, [&of](const auto& shared) { return shared.get() == &of; });
}

void SmallBlocks::free_all(Context& context) {
  const MutexLock lock(mutex_);
  for (const auto& shared : shared_) context.free_block(shared->driver);
  shared_.clear();
}

}  // namespace rondo::devices::vulkan
