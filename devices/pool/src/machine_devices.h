// What "auto" and "all" stand for on a machine.
#pragma once

#include <span>
#include <string>

#include "rondo/devices/cuda/cuda_device.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::devices {

/// Every card that can be used, as an entry of `devices`: "cuda:0,vulkan:1". By CUDA where both drivers show it, and no
/// card that is hidden from CUDA (CUDA_VISIBLE_DEVICES). No processor that poses as a card but on `all`; the CPU on
/// `all`, and where there is nothing else.
std::string machine_devices(std::span<const cuda::CardInfo> cuda, std::span<const vulkan::CardInfo> vulkan, bool all);

}  // namespace rondo::devices
