// One folder of tests/data/golden, read.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/data/samples.h"
#include "rondo/model/architecture.h"
#include "rondo/model/safetensors.h"
#include "rondo/schedule/batch.h"
#include "rondo/train/rate.h"
#include "tiny_run.h"

namespace rondo::golden {

// Relative, fp32, beside transformers and PEFT.
inline constexpr double kLossTolerance = 2e-6;
inline constexpr double kNormTolerance = 2e-5;

/// A line of full.json or lora.json.
struct Record {
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  std::uint64_t target_tokens = 0;
};

/// Step, microbatch, sequence as in batches.json.
using Sequences = std::vector<std::vector<data::Sample>>;

struct Case {
  std::filesystem::path folder;
  nlohmann::json hyper;          // "training" of batches.json
  nlohmann::json inference;      // inference.json
  std::vector<Sequences> steps;  // of batches.json
};
/// A test fails when the folder cannot be read.
Case read_case(const std::string& name);

/// Names of all cases, from MANIFEST.json.
std::vector<std::string> case_names();

/// Of MANIFEST.json: by how much the reference differs from itself in other summation orders.
struct Noise {
  double worst_tensor_error = 0;
};
Noise noise_of(const std::string& name, const std::string& method);

std::vector<Record> read_records(const std::filesystem::path& file);

/// Microbatches of one step, as the loader makes them.
std::vector<schedule::Microbatch> microbatches_of(const Sequences& step, std::uint64_t number);

/// The elements that the goldens keep of a tensor (MANIFEST's `sample`).
std::vector<float> sampled(std::span<const float> values);

/// A test fails when it cannot be read.
model::TensorFiles open_file(const std::filesystem::path& file);
std::vector<float> values_of(const model::TensorView& tensor);

/// Of a case: "full" or "lora". `parts`: of the head.
model::Architecture architecture_of(const Case& golden, const std::string& method, devices::DType dtype,
                                    std::uint32_t parts = 1);
/// Its steps from its model and, for LoRA, its adapter. `golden` outlives the job.
tiny::Job job_of(const Case& golden);

using Tensors = std::map<std::string, std::vector<float>>;
/// The elements that the goldens keep of the masters.
Tensors trained_tensors(const model::Architecture& model, offload::ParameterStore& store);

}  // namespace rondo::golden
