#include "tiny_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "rondo/devices/encoding.h"
#include "rondo/devices/random.h"
#include "rondo/model/safetensors.h"
#include "rondo/train/loader.h"

namespace rondo::tiny {
namespace {

/// Numbers that follow from a key alone.
class Draw {
 public:
  explicit Draw(std::uint64_t key) : key_(key) {}
  /// In [-1, 1).
  float symmetric() { return 2.0F * devices::uniform_float(next()) - 1.0F; }
  /// In [low, high].
  std::uint32_t within(std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(devices::mix64(next()) % (high - low + 1));
  }

 private:
  std::uint64_t next() { return devices::combine_keys(key_, ++count_); }
  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

std::uint64_t key_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t key = seed;
  for (const char c : name) key = devices::combine_keys(key, static_cast<unsigned char>(c));
  return key;
}

void append(std::string& to, const void* from, std::size_t size) { to.append(static_cast<const char*>(from), size); }

void append_parameter(std::string& to, offload::ParameterStore& store, model::ParameterId id) {
  const devices::BufferView weights = store.published(id);
  append(to, weights.host(), weights.size);
  if (!store.specs()[id].trained) return;
  std::vector<float> values(store.specs()[id].elements);
  EXPECT_TRUE(store.read(id, offload::StateArray::kMaster, 0, std::as_writable_bytes(std::span(values))).ok());
  append(to, values.data(), values.size() * sizeof(float));
  for (const auto which : {offload::StateArray::kFirstMoment, offload::StateArray::kSecondMoment}) {
    std::vector<std::byte> moment(store.moment_size(id, which));
    EXPECT_TRUE(store.read(id, which, 0, moment).ok());
    append(to, moment.data(), moment.size());
  }
}

}  // namespace

model::ModelConfig small_config(bool tied) {
  model::ModelConfig config;
  config.family = model::Family::kQwen2;
  config.model_type = "qwen2";
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 6;
  config.vocab_size = 61;
  config.max_positions = 128;
  config.rope.theta = 10000.0;
  config.tie_word_embeddings = tied;
  config.attention_bias = true;
  config.sliding_window.assign(config.num_layers, 0);
  config.eos_token_ids = {2};
  config.pad_token_id = 3;
  return config;
}

void as_nemotron_h(model::ModelConfig& config) {
  config.family = model::Family::kNemotronH;
  config.model_type = "nemotron_h";
  config.num_layers = 4;
  config.sliding_window.assign(config.num_layers, 0);
  config.attention_bias = false;
  config.gated_mlp = false;
  config.activation = model::Activation::kReluSquared;
  config.norm_place = model::NormPlace::kMixer;
  config.without_rope.assign(config.num_layers, true);
  config.lone_mlps = {false, true, false, true};
  config.state_space = {6, 8, 12, 4, true, false, 0.25, 1.0, {true, false, false, false}, 3};
  model::ExpertsConfig& experts = config.experts.emplace();
  experts.count = 6;
  experts.choices = 2;
  experts.width = 18;
  experts.normalised = experts.sigmoid = experts.choice_bias = experts.adapts_shared = true;
  experts.dense_blocks = {true, false, true, true};
  experts.shared_width = 22;
  experts.factor = 1.5;
  experts.groups = 3;
  experts.chosen_groups = 2;
}

void as_falcon_h1(model::ModelConfig& config) {
  config.family = model::Family::kFalconH1;
  config.model_type = "falcon_h1";
  config.attention_bias = false;
  config.norm_place = model::NormPlace::kFeedForward;
  config.state_space = {4, 12, 132, 4, true, false, 0.0, 1.0, std::vector<bool>(config.num_layers, true), 2};
  config.state_space->beside_attention = true;
  config.linear_factors = {0.9, 0.5, 1.2, 1.25, {0.8, 0.5, 0.7, 1.2, 0.6}, 0.75, 0.9, 0.6};
  config.embedding_multiplier = 2.5;
  config.logits_scaling = 0.75;
}

model::MethodSpec full(devices::DType dtype) {
  model::MethodSpec method;
  method.dtype = dtype;
  method.train_weights = true;
  return method;
}

model::MethodSpec lora(devices::DType dtype, double dropout) {
  model::MethodSpec method;
  method.dtype = dtype;
  method.train_lora = true;
  method.lora.emplace();
  method.lora->rank = 3;
  method.lora->alpha = 6;
  method.lora->dropout = dropout;
  method.lora->targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return method;
}

model::MethodSpec last_block(devices::DType dtype) {
  model::MethodSpec spec = full(dtype);
  spec.trained_blocks = 1;
  return spec;
}

model::MethodSpec lora_with_ends() {
  model::MethodSpec spec = lora(devices::DType::kBfloat16);
  spec.lora->modules_to_save = {"embed_tokens", "lm_head"};
  return spec;
}

void fill_weights(const model::Architecture& model, std::uint64_t seed, offload::ParameterStore& store) {
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    const model::Parameter& parameter = model.parameters()[id];
    Draw draw(key_of(seed, parameter.name));
    std::vector<float> values(parameter.elements());
    const bool norm = parameter.kind == model::WeightKind::kNorm || parameter.kind == model::WeightKind::kMagnitude;
    const bool bias = parameter.kind == model::WeightKind::kBias;
    const float scale = norm || bias ? 0.2F : 1.5F / std::sqrt(static_cast<float>(parameter.shape.back()));
    // What an adapter adds is small beside what its layer gives, as it is in training.
    const float share = parameter.kind == model::WeightKind::kLoraB ? 0.0625F : 1.0F;
    for (float& value : values) value = (norm ? 1.0F : 0.0F) + share * scale * draw.symmetric();
    if (parameter.encoding != devices::Encoding::kPlain) {
      devices::BlockEncoder encoder(parameter.encoding, static_cast<std::int64_t>(values.size()),
                                    {store.published(id).host(), store.published(id).size});
      encoder.append(values);
      encoder.finish();
    } else if (parameter.trained || store.dtype_of(id) == devices::DType::kFloat32) {
      EXPECT_TRUE(store.write(id, offload::StateArray::kMaster, 0, values).ok());
    } else {
      model::store_float32(values, model::WeightType::kBfloat16,
                           std::span(store.published(id).host(), store.published(id).size));
    }
  }
}

data::Dataset random_samples(std::uint32_t vocabulary, std::uint64_t seed, std::size_t count, std::uint32_t longest) {
  data::Dataset dataset;
  Draw draw(seed);
  for (std::size_t i = 0; i < count; ++i) {
    data::Sample sample;
    sample.index = i;
    const std::uint32_t length = draw.within(2, longest);
    const std::uint32_t first = i % 7 == 6 ? length : draw.within(0, 1) * draw.within(0, length - 1);
    for (std::uint32_t t = 0; t < length; ++t) {
      // The product of two draws favours small ids: some come often, some never.
      const auto id =
          static_cast<std::int32_t>(draw.within(0, vocabulary - 1) * draw.within(1, vocabulary) / vocabulary);
      sample.ids.push_back(id);
      sample.labels.push_back(t >= first ? id : data::kMasked);
    }
    dataset.samples.push_back(sample);
  }
  return dataset;
}

schedule::Microbatch microbatch_of(const data::Dataset& dataset, std::uint32_t first, std::uint32_t samples,
                                   std::uint64_t step) {
  std::vector<std::uint32_t> order(samples);
  std::iota(order.begin(), order.end(), first);
  return train::to_microbatch(data::make_batch(dataset, order), 42, step);
}

std::vector<std::vector<schedule::Microbatch>> steps_of(const data::Dataset& dataset,
                                                        const std::vector<std::uint32_t>& microbatches) {
  std::vector<std::vector<schedule::Microbatch>> steps;
  std::uint32_t next = 0;
  for (const std::uint32_t count : microbatches) {
    std::vector<schedule::Microbatch>& step = steps.emplace_back();
    for (std::uint32_t m = 0; m < count; ++m) {
      const std::uint32_t samples = 1 + (next + m) % 3;
      step.push_back(microbatch_of(dataset, next, samples, steps.size() - 1));
      next += samples;
    }
  }
  EXPECT_LE(next, dataset.samples.size());
  return steps;
}

std::string bytes_of(const model::Architecture& model, offload::ParameterStore& store) {
  std::string bytes;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) append_parameter(bytes, store, id);
  return bytes;
}

std::string first_difference(const model::Architecture& model, offload::ParameterStore& store, const std::string& a,
                             const std::string& b) {
  std::size_t offset = 0;
  for (model::ParameterId id = 0; id < model.parameters().size(); ++id) {
    std::string of_this;
    append_parameter(of_this, store, id);
    if (a.compare(offset, of_this.size(), b, offset, of_this.size()) != 0) return model.parameters()[id].name;
    offset += of_this.size();
  }
  return a.size() == b.size() ? "" : "(another model)";
}

std::string card_entry(const std::string& name, double speed, double compute, const std::string& fail_at,
                       bool weights_in_place) {
  return fmt::format(
      "{}: {{flops: {{fp32: {}, bf16: {}}}, memory_bytes: 1e9, memory_bandwidth: {}, link_up: {}, link_down: {}, "
      "link_latency: 0, jitter: 0, weights_in_place: {}{}}}\n",
      name, compute * 1e16, compute * 1e16, speed * 1e16, speed * 1e13, speed * 1e13, weights_in_place,
      fail_at.empty() ? "" : ", fail_at: '" + fail_at + "'");
}

std::filesystem::path card_file(const std::string& extra) {
  const std::string text = card_entry("fast", 4, 4) + card_entry("slow", 1, 1) + extra;
  std::filesystem::path path = std::filesystem::path(testing::TempDir()) /
                               fmt::format("rondo_cards_{}_{}.yaml", ::getpid(), std::hash<std::string>()(text));
  std::ofstream(path) << text;
  return path;
}

std::string fast_cards(int count) { return fmt::format("emulated:{}#fast*{}", card_file().string(), count); }
std::string slow_cards(int count) { return fmt::format("emulated:{}#slow*{}", card_file().string(), count); }

}  // namespace rondo::tiny
