// A pool of like timed cards under a plan of equal slots, dealt in rotation: what it should cost and what it does.
//
// The model is made so that slots come out equal. With a for an attention half's products of a token and m for an MLP
// half's, a forward slot of three blocks takes 3 a + 3 m. A backward slot of one block that keeps nothing takes
// a + (2/3 + 2) m + (3/4 + 2) a, because the last product of a half need not be repeated: the same for m = 9/4 a. The
// fused slot is the head alone, whose products are a + m, three times. Cards are bound by arithmetic alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/model/architecture.h"
#include "rondo/partition/plan.h"

namespace rondo::timed {

struct PoolSetup {
  std::uint32_t devices = 2;
  std::uint32_t rounds = 8;
  std::uint32_t microbatches_per_round = 8;
  std::uint32_t steps = 4;      // the first fills the pipeline and is not measured
  double slot_seconds = 0.02;   // of one microbatch
  double jitter = 0;            // of the cards, not told to the plan
  std::filesystem::path trace;  // written there; empty: nowhere
};

/// Shares of the median step, from the end of the one before, summed over the devices; busy, commit, edges and stalls
/// make 1. The median, since on a machine that others use too some steps have gaps that the same plan has not in
/// others.
struct Measured {
  double bubble = 0;  // 1 - busy
  double commit = 0;  // nobody computes: the last gradient, the norm, the first update and upload
  double edges = 0;   // a device has not begun or is through while others compute: fill and drain
  double stalls = 0;  // gaps between a device's microbatches
};

struct Outcome {
  std::uint32_t slots = 0;  // of a step
  double closed_form = 0;   // n (n - 1) / (M K + n (n - 1))
  double expected = 0;      // the same with the commit latency of the simulation in the period
  partition::Prediction predicted;
  Measured measured;
};

/// What the executor and the planner's functions are given.
struct Scene {
  std::unique_ptr<model::Architecture> model;
  partition::ModelShape shape;
  partition::Workload work;
  partition::MachineShape machine;
  partition::Plan plan;
};
absl::StatusOr<Scene> make_scene(const PoolSetup& setup);

/// n (n - 1) / (M K + n (n - 1)): the share of fill and drain for K slots in a step.
double closed_form(std::uint32_t devices, std::uint32_t slots, std::uint32_t microbatches);

absl::StatusOr<Outcome> run(const PoolSetup& setup);

}  // namespace rondo::timed
