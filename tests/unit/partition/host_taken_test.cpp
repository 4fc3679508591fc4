// What computing with the processor takes of the host's memory follows from the slots that a device has.
#include <gtest/gtest.h>

#include <memory>

#include "scene.h"

namespace rondo::partition {
namespace {

class HostTaken : public testing::Test {
 protected:
  HostTaken() {
    add_device(scene_, 1e12);
    add_device(scene_, 1e12);
    add_device(scene_, 1e12);
    scene_.machine.host_taken = {{"drivers", 5}};
    ProcessorMemory memory;
    memory.always = {{"drivers", 2}, {"programs", 3}};
    memory.scratch_of_layers = {{1, 70}, {10, 20}, {30, 40}, {100, 1000}};
    memory.scratch_purpose = "scratch";
    const auto shared = std::make_shared<const ProcessorMemory>(std::move(memory));
    scene_.machine.devices[0].host_taken = scene_.machine.devices[1].host_taken = shared;
  }

  Bytes taken(const char* purpose, const std::vector<Slot>& slots) const {
    Bytes sum = 0;
    for (const auto& [name, bytes] : host_taken(scene_.machine, slots)) sum += name == purpose ? bytes : 0;
    return sum;
  }

  Scene scene_ = make_scene(2, 4);
};

TEST_F(HostTaken, OfEachDevice_IsTheNeediestOfItsOwnLayers) {
  const std::vector<Slot> slots = {{.phase = SlotPhase::kForward, .first_layer = 0, .last_layer = 1, .device = 0},
                                   {.phase = SlotPhase::kFused, .first_layer = 2, .last_layer = 3, .device = 1}};
  EXPECT_EQ(taken("scratch", slots), 10U + 1000U);
  EXPECT_EQ(taken("programs", slots), 6U);
  EXPECT_EQ(taken("drivers", slots), 5U + 4U);
  // The embedding's way back goes with the first block's, and no device has more than its neediest layer takes.
  const std::vector<Slot> back = {{.phase = SlotPhase::kBackward, .first_layer = 1, .last_layer = 2, .device = 0},
                                  {.phase = SlotPhase::kForward, .first_layer = 2, .last_layer = 2, .device = 0}};
  EXPECT_EQ(taken("scratch", back), 70U);
}

TEST_F(HostTaken, OfADeviceWithoutSlotsOrProcessor_IsNothing) {
  EXPECT_EQ(taken("scratch", {}), 0U);
  EXPECT_EQ(taken("scratch", {{.phase = SlotPhase::kFused, .first_layer = 0, .last_layer = 3, .device = 2}}), 0U);
  EXPECT_EQ(taken("drivers", {}), 5U);
}

}  // namespace
}  // namespace rondo::partition
