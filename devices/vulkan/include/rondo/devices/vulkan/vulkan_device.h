// Any card with a Vulkan 1.2 driver as a device of the pool.
//
// The loader is looked for when the first of these functions is called: a machine without it runs everything else, and
// so does a build that was made without Vulkan's headers and shader compiler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/devices/device.h"

namespace rondo::devices::vulkan {

/// What the driver says of a card, before it is opened.
struct CardInfo {
  std::uint32_t index = 0;  // of vulkan:N
  std::string name;         // "llvmpipe (LLVM 15.0.6, 256 bits)"
  std::string driver;       // "llvmpipe Mesa 22.3.6"
  Bytes memory_bytes = 0;   // of its largest device-local heap
  bool software = false;    // computed by the processor: `auto` leaves it out
  bool integrated = false;  // its memory is the host's
  CardUuid uuid{};
  bool cuda_too = false;      // its driver is NVIDIA's own: CUDA shows the card too, unless it is hidden from CUDA
  bool matrix_units = false;  // cooperative matrices that products of 16 bits can use
  std::string unsuitable;     // why it cannot be opened, "" when it can
};

/// Every Vulkan device of this machine in the driver's order. Errors: Unimplemented when this build has no Vulkan,
/// Unavailable when the machine has no loader or no driver; both say what to install.
absl::StatusOr<std::vector<CardInfo>> list_cards();

/// Of something that a card has or has not.
enum class Use : std::uint8_t { kAsFound, kAlways, kNever };

struct VulkanOptions {
  std::string name = "vulkan:0";
  std::uint32_t index = 0;
  Bytes memory_limit = 0;              // 0: what the card has to give, less what programs need to work in
  Bytes most_block_bytes = ~Bytes{0};  // of it at once, if the driver gives more
  std::uint32_t sharers = 1;           // devices opened on the card beside each other: each has its share of that
  bool single_queue = false;           // compute, up and down share one thread
  bool separate_blocks = false;        // no buffer holds all memory, though the card fetches texels: see docs/vulkan.md
  bool host_reaches = true;            // false: the host leaves the card's memory to the card, though it could reach it
  bool short_submissions = false;      // every dispatch is submitted by itself, as if it took long
  std::uint32_t parts = 1;             // of every dispatch, as far as it has workgroups, as if it took much longer
  bool no_doubles = false;             // sums of squares are made as on cards without fp64
  bool careless = false;           // updates lose what lies below 2^-126 and err in quotients and roots, as cards may
  bool no_bfloat16_units = false;  // bf16 is multiplied as on cards whose matrix units are for fp16 alone
  bool backwards = false;  // of what may be under way at the same time, kernels and parts of one, the last begins
  /// Copies to the card of so many bytes at least, of memory that it reads where it lies, are the card's own, though
  /// the host reaches its memory. As found: 1 MiB on a card behind a bus that has queues for copies alone, else never.
  std::optional<Bytes> card_copies_from = {};
  /// Cooperative matrices for products of 16 bits. As found: yes, unless a processor poses as the card, which is faster
  /// without. RONDO_VULKAN_MATRIX_UNITS (on, off) overrides it.
  Use matrix_units = Use::kAsFound;
  /// Kernels read weights where they lie in main memory. As found: on cards whose memory that is, unless a processor
  /// poses as the card. Where they do, `separate_blocks` holds. RONDO_VULKAN_WEIGHTS_IN_PLACE (on, off) overrides it.
  Use weights_in_place = Use::kAsFound;
  /// Switches Khronos's validation layer on and gets its complaints, one call each, from any thread.
  std::function<void(const std::string&)> on_complaint = {};
};

/// Errors: those of list_cards(); InvalidArgument when there is no such card; Unimplemented naming the features that
/// the card lacks.
absl::StatusOr<std::unique_ptr<Device>> open_vulkan(const VulkanOptions& options);

}  // namespace rondo::devices::vulkan
