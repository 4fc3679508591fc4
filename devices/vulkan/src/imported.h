// Host memory that the card reaches by itself, through VK_EXT_external_memory_host: it copies from there, where a copy
// would else go through pinned memory that the host fills first, or its kernels read weights there.
//
// Thread rule: immutable once made.
#pragma once

#include <memory>
#include <vector>

#include "context.h"
#include "rondo/devices/device.h"

namespace rondo::devices::vulkan {

class Imported final : public Memory::Tie {
 public:
  /// All of the view's memory, once, where the card copies so many bytes by itself, the driver agrees and has
  /// allocations to spare; otherwise nothing happens.
  static void import(const std::shared_ptr<Context>& context, BufferView host);
  /// All of the view's memory, once, for kernels to read. Errors: ResourceExhausted when the driver does not take it.
  static absl::Status import_for_kernels(const std::shared_ptr<Context>& context, BufferView host);
  /// Whether the driver takes memory for kernels, found out with a page of it.
  static bool kernels_reach(const std::shared_ptr<Context>& context);
  /// Null where it is not imported.
  static const Imported* of(const Memory& memory, const Context& context);
  ~Imported() override;

  /// The first of these bytes that lie in one buffer. REQUIRES: they are of the memory.
  struct Part {
    VkBuffer buffer = VK_NULL_HANDLE;
    Bytes offset = 0;
    Bytes size = 0;
  };
  Part part(const std::byte* from, Bytes size) const;
  bool for_kernels() const { return pieces_.front().address != 0; }
  /// REQUIRES: for_kernels(); the bytes are of the memory.
  VkDeviceAddress address_of(const std::byte* bytes) const {
    return pieces_.front().address + static_cast<Bytes>(bytes - begin_);
  }

 private:
  Imported(std::shared_ptr<Context> context, std::byte* begin) : context_(std::move(context)), begin_(begin) {}
  /// Null when the driver takes it not. At most `piece` bytes in one buffer.
  static std::unique_ptr<Imported> make(const std::shared_ptr<Context>& context, const Memory& memory, Bytes piece,
                                        VkBufferUsageFlags usage);
  bool add(std::byte* from, Bytes size, VkBufferUsageFlags usage);

  const std::shared_ptr<Context> context_;
  std::byte* const begin_;  // of the first page
  Bytes piece_ = 0;         // all but the last are so long
  std::vector<DriverBlock> pieces_;
};

}  // namespace rondo::devices::vulkan
