// CUDA's backends for the contract suite: the fake card everywhere, the first real one where there is one.
#include "backends.h"
#include "cuda_card.h"
#include "fake_card.h"
#include "fake_driver.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices::contract {
namespace {

cuda::CudaOptions options_for(bool single_queue) {
  cuda::CudaOptions options;
  options.memory_limit = kMemory;
  options.single_queue = single_queue;
  return options;
}

std::vector<Backend> all_backends() {
  std::vector<Backend> all;
  for (const bool single : {false, true}) {
    all.push_back({single ? "cuda_fake_one_queue" : "cuda_fake", [single](ThreadPool&) {
                     cuda::testing::reset_fake();
                     return cuda::testing::open_fake(options_for(single));
                   }});
    all.push_back({single ? "cuda_fake_one_queue_no_graphs" : "cuda_fake_no_graphs", [single](ThreadPool&) {
                     cuda::testing::reset_fake();
                     return cuda::testing::open_fake(options_for(single), {nullptr, std::nullopt});
                   }});
    if (!test::no_cuda_card().empty()) continue;
    all.push_back(
        {single ? "cuda_one_queue" : "cuda", [single](ThreadPool&) { return cuda::open_cuda(options_for(single)); }});
  }
  return all;
}

}  // namespace

const std::vector<Backend>& backends() {
  static const auto* const all = new std::vector<Backend>(all_backends());
  return *all;
}

const std::vector<Exclusion>& exclusions() {
  static const auto* const none = new std::vector<Exclusion>;
  return *none;
}

const Exclusion* find_exclusion(const std::string&, const std::string&) { return nullptr; }

}  // namespace rondo::devices::contract
