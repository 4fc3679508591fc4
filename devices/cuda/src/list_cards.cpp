// Which cards the driver shows, and which of them the kernels are for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "card_device.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

/// 75 of "sm_75, sm_86, sm_90a".
int lowest_architecture(std::string_view architectures) {
  constexpr std::string_view kBefore = "sm_";
  int lowest = std::numeric_limits<int>::max();
  for (std::size_t at = 0; (at = architectures.find(kBefore, at)) != std::string_view::npos;) {
    at += kBefore.size();
    lowest = std::min(lowest, std::atoi(architectures.data() + at));
  }
  return lowest;
}

}  // namespace

absl::StatusOr<std::uint32_t> count_cards(const Driver& driver) {
  const Result started = driver.init(0);
  if (started == kNoDevice) return 0;
  RONDO_RETURN_IF_ERROR(status_of(driver, started, "cuInit"));
  int count = 0;
  RONDO_RETURN_IF_ERROR(status_of(driver, driver.device_count(&count), "cuDeviceGetCount"));
  return static_cast<std::uint32_t>(std::max(count, 0));
}

absl::StatusOr<std::vector<CardInfo>> list_cards(const Driver& driver, const KernelImage& image) {
  RONDO_ASSIGN_OR_RETURN(const std::uint32_t count, count_cards(driver));
  const int lowest = lowest_architecture(image.architectures);
  std::vector<CardInfo> cards(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    DeviceHandle device = 0;
    RONDO_RETURN_IF_ERROR(status_of(driver, driver.device_get(&device, static_cast<int>(i)), "cuDeviceGet"));
    RONDO_RETURN_IF_ERROR(status_of(driver, driver.device_uuid(&cards[i].uuid, device), "cuDeviceGetUuid"));
    int major = 0;
    int minor = 0;
    for (const auto& [attribute, value] : {std::pair{kAttributeMajor, &major}, std::pair{kAttributeMinor, &minor}}) {
      RONDO_RETURN_IF_ERROR(
          status_of(driver, driver.device_attribute(value, attribute, device), "cuDeviceGetAttribute"));
    }
    if (10 * major + minor >= lowest) continue;
    cards[i].unsuitable = fmt::format("it is of architecture sm_{}{}, before the kernels' of this build ({})", major,
                                      minor, image.architectures);
  }
  return cards;
}

}  // namespace rondo::devices::cuda
