// One parameter, its gradients and its optimizer.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "rondo/offload/optimizer.h"

namespace rondo::offload {

class OneParameter {
 public:
  /// `disk`: the folder of its state; empty: in memory.
  OneParameter(std::uint64_t elements, const OptimizerSettings& settings, bool decays = true,
               devices::DType dtype = devices::DType::kFloat32, std::uint32_t threads = 1,
               const std::filesystem::path& disk = {})
      : settings_(settings),
        threads_(threads),
        store_(*ParameterStore::make({spec(elements, settings, decays)}, dtype, false,
                                     disk.empty() ? DiskPlacement{} : DiskPlacement{disk, {0}})),
        home_(*GradientHome::make({{0, elements, true, false, 0, -1}}, 1, false, threads_)),
        optimizer_(settings, store_, *home_, threads_, {}) {}

  void step(const std::vector<float>& gradient, double learning_rate, double factor = 1) {
    home_->begin_step(1, 1);
    std::memcpy(home_->sum(0).host(), gradient.data(), gradient.size() * sizeof(float));
    home_->complete_first(0);
    ++updates_;
    EXPECT_TRUE(optimizer_.update(0, make_factors(settings_, learning_rate, updates_, factor), updates_).ok());
  }
  /// An update that was made elsewhere.
  void count_update() { ++updates_; }
  ParameterStore& store() { return store_; }
  /// The bf16 weights' bits.
  std::vector<std::uint16_t> published() {
    std::vector<std::uint16_t> bits(store_.specs()[0].elements);
    std::memcpy(bits.data(), store_.published(0).host(), 2 * bits.size());
    return bits;
  }

 private:
  static ParameterSpec spec(std::uint64_t elements, const OptimizerSettings& settings, bool decays) {
    return {"p", elements, true, decays, devices::Encoding::kPlain, state_layout(settings, elements)};
  }

  const OptimizerSettings settings_;
  devices::ThreadPool threads_;
  ParameterStore store_;
  std::unique_ptr<GradientHome> home_;
  HostOptimizer optimizer_;
  std::uint64_t updates_ = 0;
};

}  // namespace rondo::offload
