// See fake_card.h.
#include "fake_card.h"

#include "fake_driver.h"

namespace rondo::devices::cuda::testing {

absl::StatusOr<std::unique_ptr<Device>> open_fake(const CudaOptions& options, const CardSetup& setup) {
  return open_card(fake_driver(), fake_image(), setup, options, nullptr);
}

}  // namespace rondo::devices::cuda::testing
