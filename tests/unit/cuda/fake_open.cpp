// Takes the place of devices/cuda's open.cpp in a test program: `cuda:0` of every pool is the fake card, and the runs
// of tests/support use it instead of the CPU.
#include <cstdlib>

#include "card_device.h"
#include "fake_driver.h"

namespace rondo::devices::cuda {

bool has_kernels() { return true; }

absl::StatusOr<std::vector<CardInfo>> list_cards() { return list_cards(testing::fake_driver(), testing::fake_image()); }

absl::StatusOr<DriverInfo> describe_driver() { return DriverInfo{}; }

absl::StatusOr<std::unique_ptr<Device>> open_cuda(const CudaOptions& options, DeviceProfile* estimate) {
  return open_card(testing::fake_driver(), testing::fake_image(), {nullptr, wanted_graphs()}, options, estimate);
}

namespace {
[[maybe_unused]] const int kUsesTheCard = setenv("RONDO_TEST_DEVICES", "cuda:0", 1);
}

}  // namespace rondo::devices::cuda
