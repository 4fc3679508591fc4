// Measures the bubble of timed pools: timed_pools [--devices N] [--jitter x] [--slot-seconds x] [--steps N]
// [--trace FOLDER]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "timed_pool.h"

namespace {

/// Pools of `only` cards, all of them when it is zero.
int measure(rondo::timed::PoolSetup setup, std::uint32_t only, const std::string& folder) {
  std::printf("%7s %6s %7s %6s %11s %8s %9s | %8s %7s %6s %6s\n", "devices", "rounds", "M/round", "slots",
              "closed form", "expected", "simulated", "measured", "commit", "edges", "stalls");
  for (const std::uint32_t devices : {2U, 4U, 8U}) {
    if (only != 0 && devices != only) continue;
    for (const std::uint32_t microbatches : {8U, 16U}) {
      setup.devices = devices;
      setup.microbatches_per_round = microbatches;
      if (!folder.empty()) {
        setup.trace = folder + "/timed-" + std::to_string(devices) + "x" + std::to_string(microbatches) + ".json";
      }
      const auto outcome = rondo::timed::run(setup);
      if (!outcome.ok()) {
        std::fprintf(stderr, "error: %s\n", std::string(outcome.status().message()).c_str());
        return 1;
      }
      const auto& measured = outcome->measured;
      std::printf("%7u %6u %7u %6u %10.2f%% %7.2f%% %8.2f%% | %7.2f%% %6.2f%% %5.2f%% %5.2f%%\n", devices, setup.rounds,
                  microbatches, outcome->slots, 100 * outcome->closed_form, 100 * outcome->expected,
                  100 * outcome->predicted.bubble, 100 * measured.bubble, 100 * measured.commit, 100 * measured.edges,
                  100 * measured.stalls);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  rondo::timed::PoolSetup setup;
  std::uint32_t only = 0;
  std::string folder;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view option = arguments[i];
    if (option == "--devices") only = static_cast<std::uint32_t>(std::atoi(arguments[i + 1]));
    if (option == "--jitter") setup.jitter = std::atof(arguments[i + 1]);
    if (option == "--slot-seconds") setup.slot_seconds = std::atof(arguments[i + 1]);
    if (option == "--steps") setup.steps = static_cast<std::uint32_t>(std::max(2, std::atoi(arguments[i + 1])));
    if (option == "--trace") folder = arguments[i + 1];
  }
  return measure(setup, only, folder);
}
