// Host memory that the card copies from by itself, through VK_EXT_external_memory_host: without it a copy goes through
// pinned memory, which the host fills first.
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
  /// All of the view's memory, once, where the host does not write the card's memory anyway and the driver agrees;
  /// otherwise nothing happens.
  static void import(const std::shared_ptr<Context>& context, BufferView host);
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

 private:
  Imported(std::shared_ptr<Context> context, std::byte* begin) : context_(std::move(context)), begin_(begin) {}
  bool add(std::byte* from, Bytes size);

  const std::shared_ptr<Context> context_;
  std::byte* const begin_;  // of the first page
  Bytes piece_ = 0;         // all but the last are so long
  std::vector<DriverBlock> pieces_;
};

}  // namespace rondo::devices::vulkan
