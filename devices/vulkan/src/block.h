// Blocks of a card's memory: with memory of the driver's to themselves, or pieces of a block that others share.
//
// Thread rule: a block is used as its owner is; everything else may be called from any thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "arena.h"
#include "rondo/base/mutex.h"
#include "rondo/base/units.h"
#include "vulkan_headers.h"

namespace rondo::devices::vulkan {

class Context;
class SmallBlocks;

/// A VkBuffer with memory of its own, as the driver gives it: nobody's until somebody owns it.
struct DriverBlock {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkDeviceAddress address = 0;
  std::byte* host = nullptr;  // null when the host cannot address it
  Bytes size = 0;
};

/// One that others are pieces of.
struct SharedBlock {
  SharedBlock(const DriverBlock& block, SmallBlocks* small) : driver(block), pieces(block.size), of(small) {}
  DriverBlock driver;
  Pieces pieces;
  SmallBlocks* const of;  // null: the one that the context has gathered
};

/// Memory of a card. Movable owner.
class Block {
 public:
  enum class Kind : std::uint8_t {
    kDevice,   // where kernels work
    kStaging,  // the host's, read and written by both
    kTexels,   // as kDevice, and fetched by texels as well
  };
  /// A buffer of its own, or a piece of the one that the context has gathered. Where the card is a processor the block
  /// is resident from the start, as a card's own memory is; not so kTexels. Errors: ResourceExhausted with the numbers.
  static absl::StatusOr<Block> make(std::shared_ptr<Context> context, Bytes size, Kind kind);
  /// The same for what there are many of: small ones are pieces of larger blocks. REQUIRES: not kTexels.
  static absl::StatusOr<Block> make_small(std::shared_ptr<Context> context, Bytes size, Kind kind);
  Block() = default;
  ~Block() { release(); }
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;

  VkBuffer buffer() const { return driver_.buffer; }
  /// Of the first byte within buffer().
  Bytes begin() const { return begin_; }
  VkDeviceAddress address() const { return driver_.address + begin_; }
  Bytes size() const { return size_; }
  /// Null when the host cannot address it.
  std::byte* host() const { return driver_.host == nullptr ? nullptr : driver_.host + begin_; }

 private:
  static Block piece_of(std::shared_ptr<Context> context, SharedBlock& shared, Bytes begin, Bytes size, Kind kind);
  void make_resident(Kind kind);
  void release();

  std::shared_ptr<Context> context_;
  DriverBlock driver_;
  SharedBlock* shared_ = nullptr;  // null where the driver's block is its own
  Bytes begin_ = 0;
  Bytes size_ = 0;
};

/// Small blocks of a kind, pieces of few blocks of the driver's: a program has up to half a dozen of some kilobytes
/// each, a run may have thousands of programs, and a driver need not give more than 4096 allocations
/// (maxMemoryAllocationCount). Pieces begin with Pieces::kGrain, as far apart as any limit of a card asks for.
class SmallBlocks {
 public:
  static constexpr Bytes kLargest = 128_KiB;

  explicit SmallBlocks(Block::Kind kind) : kind_(kind) {}

  struct Piece {
    SharedBlock* of = nullptr;
    Bytes begin = 0;
  };
  /// REQUIRES: size <= kLargest. Errors: ResourceExhausted with the numbers.
  absl::StatusOr<Piece> take(Context& context, Bytes size);
  /// What nothing is left of goes back to the driver, but for the last.
  void give_back(Context& context, SharedBlock& of, Bytes begin, Bytes size);
  /// All of it, of which nothing is in use any more.
  void free_all(Context& context);

 private:
  static constexpr Bytes kTogether = 1_MiB;

  const Block::Kind kind_;
  Mutex mutex_;
  std::vector<std::unique_ptr<SharedBlock>> shared_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace rondo::devices::vulkan
