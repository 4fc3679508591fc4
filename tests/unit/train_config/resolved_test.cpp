// The resolved file: every training key is in it, and reading it back gives the same configuration.
#include <fmt/format.h>

#include <random>

#include "config_keys.h"
#include "config_test_util.h"

namespace rondo::train {
namespace {

/// A value inside the key's range, by its type.
class Randomiser {
 public:
  explicit Randomiser(std::uint64_t seed) : random_(seed) {}

  std::string value(const config::Key& key) {
    if (!key.choices.empty()) return key.choices[below(key.choices.size())];
    return std::visit([&](auto member) { return this->typed(key, Config{}.*member); }, key.member);
  }

 private:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  std::string typed(const config::Key& key, bool) {
    return !key.unavailable.empty() || below(2) == 0 ? "false" : "true";
  }
  std::string typed(const config::Key& key, const std::string& fallback) {
    if (!key.unavailable.empty()) return fallback;
    static const std::vector<std::string> values = {
        "a",           "with space", "q\"uote\\ 'd'", "# x: y", "\xc3\xa9t\xc3\xa9",
        "line\ntab\t", "null",       "1e5",           "- x",    "{a: b}"};
    return key.list ? "q_proj,v_proj" : values[below(values.size())];
  }
  std::string typed(const config::Key& key, double) {
    if (key.of_run && below(2) == 0) return typed(key, std::uint64_t{});
    const double high = key.of_run ? 1 : std::min(key.range.high, 1e9);
    return fmt::format("{}", std::uniform_real_distribution<double>(key.range.low, high)(random_));
  }
  template <typename Whole>
  std::string typed(const config::Key& key, Whole) {
    const auto low = static_cast<std::uint64_t>(key.range.low) + (key.range.above_low ? 1U : 0U);
    const auto high = static_cast<std::uint64_t>(std::min(key.range.high, 1e15));
    return std::to_string(std::uniform_int_distribution<std::uint64_t>(low, high)(random_));
  }

  std::mt19937_64 random_;
};

void expect_same(const Config& a, const Config& b) {
  for (const config::Key& key : config::training_keys()) {
    EXPECT_EQ(config::value_text(a, key), config::value_text(b, key)) << key.name;
  }
}

TEST(Resolved, RandomConfigurations_ReadBackAsTheyWere) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Randomiser random(seed);
    Config config;
    for (const config::Key& key : config::training_keys()) {
      const absl::Status set = config::set_value(key, random.value(key), key.name, config);
      ASSERT_TRUE(set.ok()) << set.ToString();
    }
    // Keys that exclude each other or have a bound together.
    config.cutoff_len = 2 + config.cutoff_len % 10000;
    config.quantization_bit = 4 * (config.quantization_bit % 3);
    config.boundary_quantization_bit = 4 * (config.boundary_quantization_bit % 3);
    if (config.quantization_bit > 0) {
      config.finetuning_type = "lora";
      config.dtype = "bf16";
    }
    if (config.optim != "adamw" || config.staleness > 0) config.optimizer_state = "host";
    config.fp8 = config.fp8 && config.dtype == "bf16";
    if (!config.fp8) config.fp8_format = "e4m3";
    config.lr_scheduler_type = "warmup_stable_decay";
    config.lr_scheduler_kwargs = "num_decay_steps=3,decay_type=1-sqrt";
    config.val_size = 0;
    config.dataset_weights = "2,0.5";
    config.mask_history = config.mask_history && !config.train_on_prompt;
    config.overwrite_output_dir = false;
    // These need evaluations in the course of the run.
    if (config.save_strategy == "best") config.save_strategy = "steps";
    config.early_stopping_patience = 0;
    config.load_best_model_at_end = false;
    if (config.finetuning_type != "lora") config.adapter_name_or_path.clear();
    const YamlFile file(format_resolved(config));
    const auto again = parse_arguments("train", {file.path()});
    ASSERT_TRUE(again.ok()) << again.status().ToString() << "\n" << format_resolved(config);
    expect_same(config, *again);
    EXPECT_EQ(format_resolved(*again), format_resolved(config));
  }
}

TEST(Resolved, Defaults_AreAllThereAndReadBack) {
  Config config;
  config.model_name_or_path = "m";
  config.dataset = "d";
  config.output_dir = "o";
  const std::string text = format_resolved(config);
  for (const config::Key& key : config::training_keys()) {
    EXPECT_NE(("\n" + text).find("\n" + key.name + ": "), std::string::npos) << key.name;
  }
  const YamlFile file(text);
  const auto again = parse_arguments("train", {file.path()});
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  expect_same(config, *again);
}

}  // namespace
}  // namespace rondo::train
