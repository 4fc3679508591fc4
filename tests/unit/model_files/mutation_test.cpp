// Files broken at random: 20,000 mutations each, from a fixed seed. What is refused must be refused properly; what is
// accepted must keep the promises that the rest of the program builds on.
#include <algorithm>
#include <random>

#include "helpers.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/parameters.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {
namespace {

using Json = nlohmann::json;
constexpr int kRounds = 20'000;

/// One to four changes: bytes flipped, cut, doubled, or replaced by what parsers trip over.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void change(std::string& text) {
    static const std::vector<std::string> kWords = {"0",
                                                    "-1",
                                                    "1e308",
                                                    "18446744073709551615",
                                                    "18446744073709551616",
                                                    "4294967296",
                                                    "2147483648",
                                                    "1.5",
                                                    "null",
                                                    "true",
                                                    "\"\"",
                                                    "[]",
                                                    "{}",
                                                    "[[",
                                                    "\"",
                                                    "\\u0000",
                                                    ",",
                                                    ":",
                                                    "}",
                                                    "]",
                                                    "\xff",
                                                    "\"F16\"",
                                                    "\"a\"",
                                                    "NaN"};
    const std::size_t place = below(text.size());
    switch (below(6)) {
      case 0:
        if (!text.empty()) text[place] = static_cast<char>(text[place] ^ static_cast<char>(1U << below(8)));
        return;
      case 1:
        text.erase(place, 1 + below(8));
        return;
      case 2:
        text.insert(place, kWords[below(kWords.size())]);
        return;
      case 3:
        text.insert(place, text.substr(place, 1 + below(40)));
        return;
      case 4:
        replace_number(text, place, kWords[below(kWords.size())]);
        return;
      default:
        if (below(10) == 0) text.resize(place);
    }
  }

  /// The next number after `place` gives way to `word`.
  static void replace_number(std::string& text, std::size_t place, const std::string& word) {
    const std::size_t begin = text.find_first_of("0123456789", place);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789.", begin), text.size());
    text.replace(begin, end - begin, word);
  }

  std::mt19937_64 random_;
};

void expect_sound(const ModelConfig& config) {
  ASSERT_GT(config.hidden_size, 0U);
  ASSERT_GT(config.num_kv_heads, 0U);
  EXPECT_EQ(config.num_heads % config.num_kv_heads, 0U);
  EXPECT_EQ(config.head_dim % 2, 0U);
  EXPECT_GE(config.rope.factor, 1.0);
  EXPECT_GE(config.rope.theta, 1.0);
  ASSERT_EQ(config.sliding_window.size(), config.num_layers);
  EXPECT_TRUE(config.without_rope.empty() || config.without_rope.size() == config.num_layers);
  EXPECT_GT(config.attention_scale.value_or(1.0), 0.0);
  EXPECT_GT(config.logits_scaling, 0.0);
  EXPECT_GE(config.attention_cap, 0.0);
  EXPECT_GE(config.logits_cap, 0.0);
  if (config.num_layers <= 64) {
    for (const ParameterSpec& spec : model_parameters(config)) EXPECT_LT(spec.elements(), 1ULL << 47U);
  }
  const auto again = parse_config(format_config(config), "again");
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(ConfigMutations, NeverCrash_AndAcceptedOnesAreSound) {
  const std::vector<std::string> seeds = {
      R"({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "use_sliding_window": true,
          "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"], "max_window_layers": 1,
          "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256,
          "beta_fast": 32, "beta_slow": 1, "truncate": true}, "rope_theta": 1000000.0, "eos_token_id": [5, 6]})",
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "rms_norm_eps": 1e-05, "dtype": "bfloat16", "head_dim": 16,
          "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, "attention_bias": false})",
      R"({"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "head_dim": 16, "sliding_window": 16,
          "sliding_window_pattern": 2, "query_pre_attn_scalar": 24, "rope_theta": 1000000.0, "rope_parameters":
          {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_theta": 10000.0}}})",
      R"({"model_type": "gemma2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "head_dim": 16, "sliding_window": 16,
          "query_pre_attn_scalar": 24, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})",
      R"({"model_type": "granite", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
          "logits_scaling": 8.0, "attention_multiplier": 0.015625, "mlp_bias": false})",
      R"({"model_type": "smollm3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "no_rope_layers": [1, 0], "no_rope_layer_interval": 2,
          "use_sliding_window": true, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]})",
      R"({"model_type": "ministral3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "head_dim": 16, "rope_parameters":
          {"rope_type": "yarn", "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
          "original_max_position_embeddings": 64, "rope_theta": 1000000.0}, "sliding_window": null})",
      R"({"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 300, "num_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 24, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1],
          "output_router_logits": false})"};
  Mutator mutator(20240601);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = mutator.mutate(seeds[mutator.below(seeds.size())]);
    const auto config = parse_config(text, "config.json");
    if (config.ok()) {
      ++accepted;
      expect_sound(*config);
    } else {
      expect_refused(config.status(), {"config.json"});
    }
    if (HasFailure()) FAIL() << "round " << round << ": " << text;
  }
  // Both outcomes must have been exercised.
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_LT(accepted, kRounds * 9 / 10);
}

TEST(AdapterMutations, NeverCrash_AndAcceptedOnesAreSound) {
  const std::string seed =
      R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.05,
          "target_modules": ["q_proj", "model.layers.0.self_attn.v_proj", "layers.1.self_attn.v_proj"],
          "bias": "none", "rank_pattern": {}, "use_rslora": false})";
  const auto folder = fresh_folder();
  Mutator mutator(7);
  int accepted = 0;
  for (int round = 0; round < kRounds / 4; ++round) {
    const std::string text = mutator.mutate(seed);
    put(folder / "adapter_config.json", text);
    const auto lora = load_adapter_config(folder);
    if (lora.ok()) {
      ++accepted;
      EXPECT_FALSE(lora->targets.empty());
      EXPECT_GT(lora->rank, 0U);
      for (const std::string& target : lora->targets) EXPECT_GT(lora->scale_of(target), 0.0) << target;
    } else {
      expect_refused(lora.status(), {"adapter_config.json"});
    }
    if (HasFailure()) FAIL() << "round " << round << ": " << text;
  }
  EXPECT_GT(accepted, 0);
}

/// Every view lies inside the file, has the bytes that its shape needs and shares them with no other.
void expect_sound(const TensorFiles& files, std::size_t file_bytes) {
  std::size_t total = 0;
  std::vector<std::pair<const std::byte*, const std::byte*>> places;
  for (const auto& [name, view] : files.tensors()) {
    EXPECT_EQ(view.data.size(), view.elements() * weight_type_size(view.type));
    std::vector<float> values(view.elements());
    TensorFiles::read_as_float32(view, values);
    files.release(view);
    total += view.data.size();
    if (!view.data.empty()) places.emplace_back(view.data.data(), view.data.data() + view.data.size());
  }
  EXPECT_LE(total + 8, file_bytes);
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) EXPECT_LE(places[i - 1].second, places[i].first);
}

TEST(SafetensorsMutations, NeverCrash_AndAcceptedOnesAreSound) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b.weight":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
      R"("c":{"dtype":"F16","shape":[0,5],"data_offsets":[32,32]},"d":{"dtype":"F16","shape":[2],"data_offsets":[32,36]}})";
  const auto file = fresh_folder() / "model.safetensors";
  Mutator mutator(99);
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    // Half of the rounds keep the size field right, so that the header's text is reached.
    std::string bytes = mutator.below(2) == 0 ? safetensors_bytes(mutator.mutate(header), std::string(36, 'x'))
                                              : mutator.mutate(safetensors_bytes(header, std::string(36, 'x')));
    put(file, bytes);
    const auto files = TensorFiles::open_file(file);
    if (files.ok()) {
      ++accepted;
      expect_sound(*files, bytes.size());
    } else {
      expect_refused(files.status(), {"model.safetensors"});
    }
    if (HasFailure())
      FAIL() << "round " << round << ": " << Json(bytes).dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_LT(accepted, kRounds * 9 / 10);
}

TEST(IndexMutations, NeverCrash_AndNeverLeaveTheFolder) {
  const auto folder = fresh_folder();
  put(folder / "s1", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd"));
  put(folder / "s2", safetensors_bytes(R"({"b":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", "abcd"));
  const std::string seed = R"({"metadata":{"total_size":8},"weight_map":{"a":"s1","b":"s2"}})";
  Mutator mutator(5);
  for (int round = 0; round < kRounds / 4; ++round) {
    const std::string text = mutator.mutate(seed);
    put(folder / "model.safetensors.index.json", text);
    const auto files = TensorFiles::open_model(folder);
    if (!files.ok()) expect_refused(files.status(), {folder.string()});
    if (HasFailure()) FAIL() << "round " << round << ": " << text;
  }
}

}  // namespace
}  // namespace rondo::model
