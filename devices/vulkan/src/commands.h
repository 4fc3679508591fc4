// A command buffer with a pool of its own.
//
// Thread rule: used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "context.h"

namespace rondo::devices::vulkan {

class Commands {
 public:
  /// What is recorded is run once, and recorded anew the next time; or as often as is wanted.
  enum class Use : std::uint8_t { kOnce, kOften };

  Commands() = default;
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// For queues of `family`. Not made twice.
  absl::Status make(std::shared_ptr<Context> context, std::uint32_t family, Use use);
  /// Forgets what was recorded. `what` is being recorded, for errors. REQUIRES: make().
  absl::Status begin(const char* what);
  absl::Status end(const char* what);

  VkCommandBuffer get() const { return commands_; }

 private:
  std::shared_ptr<Context> context_;
  Use use_ = Use::kOnce;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
};

}  // namespace rondo::devices::vulkan
