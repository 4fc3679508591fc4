// Which cards the driver shows, and which of them the kernels are for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "card_device.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

/// Whether there is code for the card in an image of `architectures`, "sm_75, sm_90a, sm_120": machine code of the same
/// major version and no later minor one, where an "a" is for that very card; or PTX, which is of the last, for what
/// comes after it (CUDA C++ Programming Guide, "Application Compatibility").
bool has_code(std::string_view architectures, int major, int minor) {
  constexpr std::string_view kBefore = "sm_";
  const int card = 10 * major + minor;
  for (std::size_t at = architectures.find(kBefore); at != std::string_view::npos;) {
    at += kBefore.size();
    const std::size_t next = architectures.find(kBefore, at);
    const int compiled_for = std::atoi(architectures.data() + at);
    const std::string_view name = architectures.substr(at, next == std::string_view::npos ? next : next - at);
    const bool of_one = name.find('a') != std::string_view::npos;
    const bool is_last = next == std::string_view::npos;
    if (compiled_for == card) return true;
    if (!of_one && compiled_for < card && (is_last || compiled_for / 10 == major)) return true;
    at = next;
  }
  return false;
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
    if (has_code(image.architectures, major, minor)) continue;
    cards[i].unsuitable = fmt::format("it is of architecture sm_{}{}, for which this build has no kernels ({})", major,
                                      minor, image.architectures);
  }
  return cards;
}

}  // namespace rondo::devices::cuda
