// What `devices: auto` takes of what drivers show.
#include "machine_devices.h"

#include <gtest/gtest.h>

#include <vector>

namespace rondo::devices {
namespace {

CardUuid uuid(std::uint8_t of) {
  CardUuid bytes{};
  bytes.fill(of);
  return bytes;
}
cuda::CardInfo by_cuda(std::uint8_t of, const std::string& unsuitable = "") { return {uuid(of), unsuitable}; }
vulkan::CardInfo by_vulkan(std::uint32_t index, std::uint8_t of) {
  vulkan::CardInfo card;
  card.index = index;
  card.uuid = uuid(of);
  return card;
}
vulkan::CardInfo of_nvidia(std::uint32_t index, std::uint8_t of) {
  vulkan::CardInfo card = by_vulkan(index, of);
  card.cuda_too = true;
  return card;
}
vulkan::CardInfo rasteriser(std::uint32_t index) {
  vulkan::CardInfo card = by_vulkan(index, 99);
  card.software = true;
  return card;
}

using Cuda = std::vector<cuda::CardInfo>;
using Vulkan = std::vector<vulkan::CardInfo>;

TEST(MachineDevices, Nothing_IsTheCpu) {
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{}, false), "cpu");
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{}, true), "cpu");
}

TEST(MachineDevices, CardOfBothDrivers_IsTakenOnceByCuda) {
  EXPECT_EQ(machine_devices(Cuda{by_cuda(1), by_cuda(2)}, Vulkan{of_nvidia(0, 2), of_nvidia(1, 1)}, false),
            "cuda:0,cuda:1");
}

TEST(MachineDevices, CardOfAnotherVendor_IsTakenBesideCuda) {
  EXPECT_EQ(machine_devices(Cuda{by_cuda(1)}, Vulkan{by_vulkan(0, 7), of_nvidia(1, 1)}, false), "cuda:0,vulkan:0");
  EXPECT_EQ(machine_devices(Cuda{by_cuda(1)}, Vulkan{by_vulkan(0, 7), of_nvidia(1, 1), rasteriser(2)}, true),
            "cpu,cuda:0,vulkan:0,vulkan:2");
}

TEST(MachineDevices, CardTooOldForCuda_IsTakenByVulkan) {
  EXPECT_EQ(machine_devices(Cuda{by_cuda(1, "too old"), by_cuda(2)}, Vulkan{of_nvidia(0, 1), of_nvidia(1, 2)}, false),
            "cuda:1,vulkan:0");
}

TEST(MachineDevices, CardOfTwoVulkanDrivers_IsTakenOnce) {
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{by_vulkan(0, 7), by_vulkan(1, 7), by_vulkan(2, 8)}, false),
            "vulkan:0,vulkan:2");
  vulkan::CardInfo old = by_vulkan(0, 7);
  old.unsuitable = "its driver lacks something";
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{old, by_vulkan(1, 7)}, false), "vulkan:1");
}

TEST(MachineDevices, CardsThatNoDriverTellsApart_AreAllTaken) {
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{by_vulkan(0, 0), by_vulkan(1, 0)}, false), "vulkan:0,vulkan:1");
}

TEST(MachineDevices, CardHiddenFromCuda_IsLeftAlone) {
  EXPECT_EQ(machine_devices(Cuda{by_cuda(1)}, Vulkan{of_nvidia(0, 1), of_nvidia(1, 2)}, false), "cuda:0");
}

TEST(MachineDevices, WithoutCuda_VulkanTakesAllCardsButSoftware) {
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{of_nvidia(0, 1), by_vulkan(1, 7), rasteriser(2)}, false),
            "vulkan:0,vulkan:1");
  vulkan::CardInfo poor = by_vulkan(0, 3);
  poor.unsuitable = "it lacks something";
  EXPECT_EQ(machine_devices(Cuda{}, Vulkan{poor, rasteriser(1)}, false), "cpu");
}

}  // namespace
}  // namespace rondo::devices
