#include "golden_case.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "rondo/model/stored_weights.h"
#include "rondo/train/loader.h"
#include "rondo/train/model_place.h"
#include "rondo/train/weights.h"

namespace rondo::golden {
namespace {

nlohmann::json read_json(const std::filesystem::path& file) {
  std::ifstream stream(file);
  nlohmann::json value = nlohmann::json::parse(stream, nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << file << " is not there or no JSON";
  return value;
}

const nlohmann::json& manifest() {
  static const auto* const value = new nlohmann::json(read_json(RONDO_TEST_DATA "/golden/MANIFEST.json"));
  return *value;
}

}  // namespace

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& [name, noise] : manifest()["noise"].items()) names.push_back(name);
  return names;
}

Noise noise_of(const std::string& name, const std::string& method) {
  return {manifest()["noise"][name][method]["worst_tensor_error"].get<double>()};
}

Case read_case(const std::string& name) {
  Case found;
  found.folder = std::filesystem::path(RONDO_TEST_DATA "/golden") / name;
  const nlohmann::json batches = read_json(found.folder / "batches.json");
  found.hyper = batches["training"];
  found.inference = read_json(found.folder / "inference.json");
  for (const nlohmann::json& step : batches["steps"]) {
    Sequences& sequences = found.steps.emplace_back();
    for (const nlohmann::json& microbatch : step) {
      std::vector<data::Sample>& samples = sequences.emplace_back();
      for (const nlohmann::json& sequence : microbatch) {
        samples.push_back({sequence["ids"].get<std::vector<std::int32_t>>(),
                           sequence["labels"].get<std::vector<std::int32_t>>(), samples.size()});
      }
    }
  }
  return found;
}

std::vector<Record> read_records(const std::filesystem::path& file) {
  std::vector<Record> records;
  const nlohmann::json golden = read_json(file);
  for (const nlohmann::json& line : golden["steps"]) {
    records.push_back({line["loss"].get<double>(), line["grad_norm"].get<double>(), line["learning_rate"].get<double>(),
                       line["target_tokens"].get<std::uint64_t>()});
  }
  return records;
}

std::vector<schedule::Microbatch> microbatches_of(const Sequences& step, std::uint64_t number) {
  std::vector<schedule::Microbatch> batches;
  for (const std::vector<data::Sample>& samples : step) {
    data::Dataset dataset;
    for (const data::Sample& sample : samples) dataset.samples.push_back(sample);
    std::vector<std::uint32_t> order(samples.size());
    std::iota(order.begin(), order.end(), 0U);
    batches.push_back(train::to_microbatch(data::make_batch(dataset, order), 0, number));
  }
  return batches;
}

std::vector<float> sampled(std::span<const float> values) {
  const auto& sample = manifest()["sample"];
  if (values.size() <= sample["whole_up_to"].get<std::size_t>()) return {values.begin(), values.end()};
  std::vector<float> kept;
  for (std::size_t i = 0; i < values.size(); i += sample["stride"].get<std::size_t>()) kept.push_back(values[i]);
  return kept;
}

model::TensorFiles open_file(const std::filesystem::path& file) {
  auto files = model::TensorFiles::open_file(file);
  EXPECT_TRUE(files.ok()) << files.status();
  return *std::move(files);
}

std::vector<float> values_of(const model::TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  model::TensorFiles::read_as_float32(tensor, values);
  return values;
}

model::Architecture architecture_of(const Case& golden, const std::string& method, devices::DType dtype,
                                    std::uint32_t parts) {
  const auto config = train::open_config(golden.folder / "model", Documents(golden.folder / "model"));
  EXPECT_TRUE(config.ok()) << config.status();
  model::MethodSpec spec;
  spec.dtype = dtype;
  spec.train_weights = method == "full";
  if (parts > 1) spec.head_part_rows = config->vocab_size / parts;
  if (method == "lora") {
    spec.lora = *model::load_adapter_config(golden.folder / "adapter");
    spec.train_lora = true;
  }
  return *model::Architecture::make(*config, spec);
}

namespace {

/// Fills a store from the case's model and, for LoRA, its adapter.
void load(const Case& golden, const model::Architecture& model, offload::ParameterStore& store) {
  const auto files = train::open_tensors(golden.folder / "model", model.config());
  ASSERT_TRUE(files.ok()) << files.status();
  std::optional<model::TensorFiles> adapter;
  if (model.method().lora) {
    auto factors = model::open_factors(model.config(), *model.method().lora,
                                       golden.folder / "adapter" / "adapter_model.safetensors");
    ASSERT_TRUE(factors.ok()) << factors.status();
    adapter = *std::move(factors);
  }
  const absl::Status loaded = train::load_weights(model, *files, adapter ? &*adapter : nullptr, store);
  ASSERT_TRUE(loaded.ok()) << loaded;
}

}  // namespace

tiny::Job job_of(const Case& golden) {
  tiny::Job job;
  for (std::size_t step = 0; step < golden.steps.size(); ++step) {
    job.steps.push_back(microbatches_of(golden.steps[step], step));
  }
  job.optimizer = {golden.hyper["betas"][0].get<double>(), golden.hyper["betas"][1].get<double>(),
                   golden.hyper["epsilon"].get<double>(), golden.hyper["weight_decay"].get<double>()};
  job.fill = [&golden](const model::Architecture& model, offload::ParameterStore& store) {
    load(golden, model, store);
  };
  return job;
}

Tensors trained_tensors(const model::Architecture& model, offload::ParameterStore& store) {
  Tensors tensors;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    if (parameter.trained) tensors[parameter.name] = sampled(store.master(id));
  }
  return tensors;
}

}  // namespace rondo::golden
