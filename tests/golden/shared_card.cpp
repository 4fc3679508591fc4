// Behind shared_card.h.
#include "shared_card.h"

#include <gtest/gtest.h>

#include <map>

#include "rondo/base/status.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::golden {
namespace {

class OpenCards : public ::testing::Environment {
 public:
  static absl::StatusOr<devices::Device*> get(std::uint32_t index) {
    std::unique_ptr<devices::Device>& card = opened()[index];
    if (card == nullptr) {
      devices::vulkan::VulkanOptions options;
      options.name = "vulkan:" + std::to_string(index);
      options.index = index;
      RONDO_ASSIGN_OR_RETURN(card, devices::vulkan::open_vulkan(options));
    }
    return card.get();
  }
  void TearDown() override { opened().clear(); }

 private:
  static std::map<std::uint32_t, std::unique_ptr<devices::Device>>& opened() {
    static auto* const cards = new std::map<std::uint32_t, std::unique_ptr<devices::Device>>;
    return *cards;
  }
};
const ::testing::Environment* const kOpenCards = ::testing::AddGlobalTestEnvironment(new OpenCards);

/// Passes all on, and leaves the card open.
class Borrowed final : public devices::Device {
 public:
  explicit Borrowed(devices::Device& card) : card_(card) {}
  const devices::DeviceCaps& caps() const override { return card_.caps(); }
  absl::StatusOr<devices::Buffer> allocate(Bytes size, devices::MemoryKind kind) override {
    return card_.allocate(size, kind);
  }
  void expect_copies(devices::BufferView host, devices::QueueRole direction) override {
    card_.expect_copies(host, direction);
  }
  absl::Status use_in_place(devices::BufferView host) override { return card_.use_in_place(host); }
  absl::StatusOr<std::unique_ptr<devices::Program>> compile(const devices::OpList& list,
                                                            const devices::ArenaLayout& layout) override {
    return card_.compile(list, layout);
  }
  absl::StatusOr<std::unique_ptr<devices::Timeline>> timeline() override { return card_.timeline(); }
  devices::Queue& queue(devices::QueueRole role) override { return card_.queue(role); }
  void observe(devices::WorkObserver* observer) override { card_.observe(observer); }
  Bytes allocated_bytes() const override { return card_.allocated_bytes(); }
  Bytes peak_bytes() const override { return card_.peak_bytes(); }

 private:
  devices::Device& card_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<devices::Device>> shared_vulkan_card(std::uint32_t index) {
  RONDO_ASSIGN_OR_RETURN(devices::Device* const card, OpenCards::get(index));
  return std::make_unique<Borrowed>(*card);
}

}  // namespace rondo::golden
