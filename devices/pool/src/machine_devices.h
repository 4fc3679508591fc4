// What "auto" and "all" stand for on a machine.
#pragma once

#include <span>
#include <string>

#include "rondo/devices/cuda/cuda_device.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::devices {

/// Whether two drivers, or two interfaces of one, show the same card. One that does not tell its cards apart gives
/// zeros.
bool is_one_card(const CardUuid& first, const CardUuid& second);

/// Every card that can be used, as an entry of `devices`: "cuda:0,vulkan:1". By CUDA where both show it, by the first
/// of several Vulkan drivers, and no card that is hidden from CUDA (CUDA_VISIBLE_DEVICES). No processor that poses as a
/// card but on `all`; the CPU on `all`, and where there is nothing else.
std::string machine_devices(std::span<const cuda::CardInfo> cuda, std::span<const vulkan::CardInfo> vulkan, bool all);

}  // namespace rondo::devices
