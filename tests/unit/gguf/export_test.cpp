// Whole files: keys and tensors of small models, the order of llama's rows, adapters, and what is refused.
#include "rondo/gguf/export.h"

#include <cmath>
#include <fstream>
#include <set>

#include "files.h"
#include "names.h"
#include "names_linear.h"
#include "reader.h"
#include "rondo/model/expert_factors.h"
#include "rondo/model/fused_linears.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "row_order.h"
#include "small_model.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using test::entries_in;
using test::expect_refused;
using test::fresh_folder;

std::string name_in_files(const std::string& arch) {
  if (arch == "mistral" || arch == "mixtral") return "llama";
  if (arch == "internlm3" || arch == "iquestcoder" || arch == "helium") return "llama";
  if (arch == "glm") return "chatglm";
  if (arch == "granitemoehybrid") return "granite";
  if (arch == "granitemoeshared") return "granitemoe";
  if (arch == "hunyuan_v1_moe") return "hunyuan-moe";
  if (arch == "ministral3") return "mistral3";
  if (arch == "hunyuan_v1_dense") return "hunyuan-dense";
  if (arch == "qwen2_moe") return "qwen2moe";
  if (arch == "qwen3_moe") return "qwen3moe";
  if (arch == "glm4_moe") return "glm4moe";
  if (arch == "ernie4_5_moe") return "ernie4_5-moe";
  if (arch == "lfm2_moe") return "lfm2moe";
  if (arch == "gpt_oss") return "gpt-oss";
  if (arch == "gemma3_text") return "gemma3";
  return arch == "olmo3" ? "olmo2" : arch;
}

Model make_model(const std::string& arch, const fs::path& folder) {
  const model::InitOptions options = options_of(arch, 48, 64);  // 48 is no multiple of 32
  EXPECT_TRUE(model::init_model(options, folder / "model").ok());
  return {folder / "model", *model::load_config(folder / "model"),
          *model::open_weights(*model::load_config(folder / "model"), folder / "model")};
}

class ExportModel : public testing::TestWithParam<const char*> {};

TEST_P(ExportModel, F32_HoldsEveryNumber) {
  const Model m = make_model(GetParam(), fresh_folder());
  const fs::path output = m.folder / "new" / "m.gguf";
  ASSERT_TRUE(export_model(Documents(m.folder), m.config, m.files, "auto", output).ok());
  const ReadFile file = read_gguf(output);
  ASSERT_TRUE(file.whole);
  EXPECT_EQ(entries_in(output.parent_path()), 1U);
  std::set<std::string> names;
  std::set<std::string> fused;
  for (const model::JoinedTensor& joined : joined_as_in_files(model::joined_weights(m.config))) {
    const std::string name = tensor_name(m.config, joined.name);
    names.insert(name);
    std::vector<float> theirs;
    for (const model::JoinedTensor::Part& part : joined.parts) {
      fused.insert(part.name);
      const std::vector<float> rows = values_of(m.files, part.name);
      theirs.insert(theirs.end(), rows.begin(), rows.end());
    }
    ASSERT_TRUE(file.tensors.contains(name)) << name;
    EXPECT_EQ(floats_of(file.tensors.at(name)), theirs) << name;
    EXPECT_EQ(file.tensors.at(name).sizes, (std::vector<std::uint64_t>{48, theirs.size() / 48})) << name;
  }
  for (const model::ParameterSpec& spec : model::model_parameters(m.config)) {
    if (fused.contains(spec.name)) continue;
    const auto place = stacked(m.config, spec.name);
    const auto found = file.tensors.find(place ? place->name : tensor_name(m.config, spec.name));
    ASSERT_NE(found, file.tensors.end()) << spec.name;
    names.insert(found->first);
    std::vector<std::uint64_t> sizes(spec.shape.rbegin(), spec.shape.rend());
    if (place) sizes.push_back(m.config.experts->count);
    if (is_stored_as_vector(m.config, found->first)) sizes.pop_back();
    if (is_convolution_weight(found->first)) sizes = {3, 48};
    EXPECT_EQ(found->second.sizes, sizes) << spec.name;
    const std::vector<float> theirs = values_of(m.files, spec.name);
    std::vector<float> ours = floats_of(found->second);
    if (place) {  // one expert behind the other
      ASSERT_EQ(ours.size(), theirs.size() * m.config.experts->count);
      const auto begin = ours.begin() + static_cast<std::ptrdiff_t>(place->expert * theirs.size());
      ours = std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(theirs.size()));
    }
    ASSERT_EQ(ours.size(), theirs.size());
    const std::uint64_t width = spec.elements() / spec.shape.front();
    std::uint64_t turned = order_of_rows(m.config, spec.name).changes() ? 12 : 0;
    if (turned != 0 && m.config.rope.turned_share == 0.5) turned = 6;
    for (std::uint64_t i = 0; i < ours.size(); ++i) {
      // Rows of 12 in a head: 0, 6, 1, 7, ...; or of 6, 0, 3, 1, 4, ..., and then 6 that stay.
      const std::uint64_t row = i / width;
      const bool moves = row % 12 < turned;
      const std::uint64_t from = moves ? row / 12 * 12 + row % 12 / 2 + row % 2 * (turned / 2) : row;
      ASSERT_EQ(ours[i], theirs[from * width + i % width] + stored_offset(m.config, spec.name))
          << spec.name << " " << i;
    }
  }
  EXPECT_EQ(file.tensors.size(), names.size());
}

TEST_P(ExportModel, Keys_DescribeTheModel) {
  const Model m = make_model(GetParam(), fresh_folder());
  fs::create_directories(m.folder / "additional_chat_templates");
  std::ofstream(m.folder / "additional_chat_templates" / "tool_use.jinja") << "{{ tools }}";
  ASSERT_TRUE(export_model(Documents(m.folder), m.config, m.files, "q8_0", m.folder / "m.gguf").ok());
  const ReadFile file = read_gguf(m.folder / "m.gguf");
  const std::string arch = name_in_files(GetParam());
  const auto key = [&](const std::string& name) {
    const auto found = file.keys.find(name);
    return found == file.keys.end() ? nlohmann::json() : found->second;
  };
  EXPECT_EQ(key("general.architecture"), arch);
  EXPECT_EQ(key("general.type"), "model");
  EXPECT_EQ(key("general.file_type"), 7);
  EXPECT_EQ(key(arch + ".block_count"), m.config.num_layers);
  EXPECT_EQ(key(arch + ".context_length"), m.config.max_positions);
  EXPECT_EQ(key(arch + ".attention.head_count"), 4);
  const bool convolves = arch.starts_with("lfm2");  // but in the last layer
  EXPECT_EQ(key(arch + ".attention.head_count_kv"),
            convolves ? nlohmann::json({0, 2}) : nlohmann::json(m.config.num_kv_heads));
  EXPECT_EQ(key(arch + ".shortconv.l_cache"), convolves ? nlohmann::json(3) : nlohmann::json());
  EXPECT_EQ(key(arch + ".attention.key_length"), 12);
  EXPECT_EQ(key(arch + ".rope.freq_base"), 10000.0);
  const bool slides = std::ranges::any_of(m.config.sliding_window, [](std::uint32_t window) { return window != 0; });
  EXPECT_EQ(key(arch + ".attention.sliding_window"), slides ? nlohmann::json(512) : nlohmann::json());
  EXPECT_EQ(key(arch + ".logit_scale"), arch.starts_with("granite") ? nlohmann::json(1.0) : nlohmann::json());
  const bool grows = arch == "mistral3";
  EXPECT_EQ(key(arch + ".attention.temperature_scale"), grows ? nlohmann::json(0.1F) : nlohmann::json());
  EXPECT_EQ(key(arch + ".rope.scaling.yarn_log_multiplier"), grows ? nlohmann::json(1.0) : nlohmann::json());
  EXPECT_EQ(key("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(key("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(key("tokenizer.ggml.tokens").size(), m.config.vocab_size);
  EXPECT_EQ(key("tokenizer.ggml.tokens")[258], "<|im_end|>");
  EXPECT_EQ(key("tokenizer.ggml.tokens")[260], "[PAD260]");
  EXPECT_EQ(key("tokenizer.ggml.token_type")[0], 1);
  EXPECT_EQ(key("tokenizer.ggml.token_type")[258], 3);
  EXPECT_EQ(key("tokenizer.ggml.token_type")[260], 5);
  EXPECT_EQ(key("tokenizer.ggml.eos_token_id"), 258);
  EXPECT_EQ(key("tokenizer.ggml.eot_token_id"), 256);
  EXPECT_EQ(key("tokenizer.ggml.add_bos_token"), false);
  EXPECT_NE(key("tokenizer.chat_template").dump().find("<|im_start|>"), std::string::npos);
  EXPECT_EQ(key("tokenizer.chat_templates"), nlohmann::json::array({"tool_use"}));
  EXPECT_EQ(key("tokenizer.chat_template.tool_use"), "{{ tools }}");
  // 48 numbers a row are no whole blocks, 64 are; vectors stay fp32.
  EXPECT_EQ(file.tensors.at(m.config.fused_linears ? "blk.0.attn_qkv.weight" : "blk.1.attn_q.weight").type, 1U);
  EXPECT_EQ(file.tensors.at(m.config.experts ? "blk.1.ffn_down_exps.weight" : "blk.0.ffn_down.weight").type, 8U);
  if (m.config.experts) {
    EXPECT_EQ(key(arch + ".expert_count"), 8);
    EXPECT_EQ(key(arch + ".expert_used_count"), 2);
    EXPECT_EQ(file.tensors.at("blk.1.ffn_gate_inp.weight").type, 0U);
  }
  const bool dots = arch == "dots1";  // no block leads
  const bool leads = arch == "glm4moe" || arch == "ernie4_5-moe" || arch == "lfm2moe" || dots;
  const bool named = leads || arch == "qwen2moe" || arch == "qwen3moe" || arch == "gpt-oss" || arch == "hunyuan-moe";
  EXPECT_EQ(key(arch + ".expert_feed_forward_length"), named ? nlohmann::json(64) : nlohmann::json());
  if (arch == "qwen2moe") {
    EXPECT_EQ(key(arch + ".expert_shared_feed_forward_length"), 64);
    EXPECT_EQ(file.tensors.at("blk.1.ffn_gate_inp_shexp.weight").type, 0U);
    EXPECT_EQ(file.tensors.at("blk.1.ffn_gate_inp_shexp.weight").sizes, std::vector<std::uint64_t>{48});
  }
  EXPECT_EQ(key(arch + ".leading_dense_block_count"), leads ? nlohmann::json(dots ? 0 : 1) : nlohmann::json());
  const bool sigmoids = leads && arch != "ernie4_5-moe";
  EXPECT_EQ(key(arch + ".expert_gating_func"), sigmoids ? nlohmann::json(2) : nlohmann::json());
  EXPECT_EQ(key(arch + ".expert_weights_scale"), arch == "glm4moe" || dots ? nlohmann::json(1.0) : nlohmann::json());
  EXPECT_EQ(key(arch + ".expert_weights_norm"), arch == "glm4moe" || dots ? nlohmann::json(true) : nlohmann::json());
  if (leads) {
    EXPECT_EQ(file.tensors.at("blk.1.exp_probs_b.bias").type, 0U);
    EXPECT_EQ(file.tensors.at("blk.1.exp_probs_b.bias").sizes, std::vector<std::uint64_t>{8});
    EXPECT_EQ(file.tensors.count("blk.0.ffn_down.weight"), dots ? 0U : 1U);
  }
  if (arch == "glm4moe" || arch == "ernie4_5-moe" || dots) {
    EXPECT_EQ(key(arch + ".expert_shared_count"), 1);
    EXPECT_EQ(file.tensors.at("blk.1.ffn_down_shexp.weight").type, 8U);
  }
  if (arch == "glm4moe") {
    EXPECT_EQ(file.tensors.count("blk.1.post_attention_norm.weight"), 1U);
  }
  if (arch == "ernie4_5-moe") {
    EXPECT_EQ(key(arch + ".expert_shared_feed_forward_length"), 64);
    EXPECT_EQ(key(arch + ".interleave_moe_layer_step"), 1);
  }
  if (m.config.attention_sinks) {
    EXPECT_EQ(file.tensors.at("blk.1.attn_sinks.weight").type, 0U);
    EXPECT_EQ(file.tensors.at("blk.1.ffn_up_exps.bias").type, 0U);
    EXPECT_EQ(file.tensors.count("blk.1.post_attention_norm.weight"), 1U);
  }
  EXPECT_EQ(file.tensors.count("blk.1.attn_q.bias"), m.config.attention_bias ? 1U : 0U);
  if (convolves) {
    EXPECT_EQ(file.tensors.at("blk.0.shortconv.conv.weight").type, 0U);
    EXPECT_EQ(file.tensors.at("blk.0.shortconv.in_proj.weight").type, 1U);
  }
  EXPECT_EQ(file.tensors.at(convolves ? "token_embd_norm.weight" : "output_norm.weight").type, 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, ExportModel,
                         testing::Values("llama", "arcee", "mistral", "ministral3", "qwen2", "qwen3", "smollm3",
                                         "granite", "granitemoe", "olmo2", "olmo3", "gemma", "gemma2", "gemma3_text",
                                         "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "ernie4_5_moe", "lfm2_moe",
                                         "olmoe", "gpt_oss", "phi3", "hunyuan_v1_dense", "exaone4", "seed_oss",
                                         "ernie4_5", "glm4", "lfm2", "internlm3", "iquestcoder", "helium", "glm",
                                         "granitemoeshared", "granitemoehybrid", "dots1", "hunyuan_v1_moe", "nemotron"),
                         [](const auto& test_info) { return std::string(test_info.param); });

TEST(ExportAdapter, RsLora_KeepsItsScaleAndMovesRowsOfB) {
  const fs::path data = fs::path(RONDO_TEST_DATA) / "merge" / "plain";
  const model::ModelConfig config = *model::load_config(data / "base");
  model::LoraConfig lora = *model::load_adapter_config(data / "adapter");
  lora.use_rslora = true;
  const auto files = *model::TensorFiles::open_file(data / "adapter" / "adapter_model.safetensors");
  const fs::path output = fresh_folder() / "a.gguf";
  ASSERT_TRUE(export_adapter(Documents(data / "base"), config, lora, files, "auto", output).ok());
  ReadFile file = read_gguf(output);
  ASSERT_TRUE(file.whole);
  EXPECT_EQ(file.keys["general.type"], "adapter");
  EXPECT_EQ(file.keys["adapter.type"], "lora");
  EXPECT_NEAR(file.keys["adapter.lora.alpha"].get<double>() / lora.rank, 6.0 / std::sqrt(4.0), 1e-6);
  EXPECT_EQ(file.tensors.size(), files.tensors().size());
  const auto rows_of = [&](const char* name) { return floats_of(file.tensors[name]); };
  const std::string module = "model.layers.1.self_attn.k_proj";
  EXPECT_EQ(rows_of("blk.1.attn_k.weight.lora_a"), values_of(files, model::adapter_tensor_name(module, 'A')));
  // Heads of 4 rows of 4 numbers: rows 0, 2, 1, 3.
  const std::vector<float> theirs = values_of(files, model::adapter_tensor_name(module, 'B'));
  const std::vector<float> ours = rows_of("blk.1.attn_k.weight.lora_b");
  ASSERT_EQ(ours.size(), 32U);
  constexpr std::size_t kFrom[] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(ours[i], theirs[kFrom[i / 4] * 4 + i % 4]) << i;
}

TEST(ExportAdapter, OfFusedLayers_HasRowsOfAllPartsInB) {
  const fs::path data = fs::path(RONDO_TEST_DATA) / "golden" / "phi3";
  const model::ModelConfig config = *model::load_config(data / "model");
  const model::LoraConfig lora = *model::load_adapter_config(data / "adapter");
  const fs::path stored = data / "adapter" / "adapter_model.safetensors";
  const auto files = *model::open_factors(config, lora, stored);
  const fs::path output = fresh_folder() / "a.gguf";
  ASSERT_TRUE(export_adapter(Documents(data / "model"), config, lora, files, "auto", output).ok());
  ReadFile file = read_gguf(output);
  ASSERT_TRUE(file.whole);
  const auto plain = *model::TensorFiles::open_file(stored);
  EXPECT_EQ(file.tensors.size(), plain.tensors().size());
  const std::pair<const char*, const char*> kNames[] = {
      {"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}};
  for (const auto& [theirs, ours] : kNames) {
    const std::string module = std::string("model.layers.1.") + theirs;
    const std::string name = std::string("blk.1.") + ours + ".weight.lora_";
    EXPECT_EQ(floats_of(file.tensors[name + "a"]), values_of(plain, model::adapter_tensor_name(module, 'A'))) << name;
    EXPECT_EQ(floats_of(file.tensors[name + "b"]), values_of(plain, model::adapter_tensor_name(module, 'B'))) << name;
  }
}

/// scale * B A, B [experts * out, rank], A [experts * rank, in] expert by expert.
std::vector<float> product_of(const std::vector<float>& b, const std::vector<float>& a, std::uint64_t experts,
                              std::uint64_t rank, double scale) {
  const std::uint64_t in = a.size() / experts / rank;
  const std::uint64_t rows = b.size() / rank;
  std::vector<float> sums;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t i = 0; i < in; ++i) {
      double sum = 0;
      for (std::uint64_t r = 0; r < rank; ++r) {
        sum += static_cast<double>(b[row * rank + r]) * a[(row / (rows / experts) * rank + r) * in + i];
      }
      sums.push_back(static_cast<float>(scale * sum));
    }
  }
  return sums;
}

/// What a reader adds to a weight: alpha / rank * B A, of each expert where there are several.
std::vector<float> added_by(ReadFile& file, const std::string& name, std::uint64_t experts) {
  const auto& a = file.tensors.at(name + ".lora_a");
  const auto& b = file.tensors.at(name + ".lora_b");
  const std::uint64_t rank = a.sizes[1];
  EXPECT_EQ(b.sizes[0], rank) << name;
  std::vector<std::uint64_t> of_experts;
  if (experts > 1) of_experts = {experts};
  EXPECT_EQ(std::vector(a.sizes.begin() + 2, a.sizes.end()), of_experts) << name;
  EXPECT_EQ(std::vector(b.sizes.begin() + 2, b.sizes.end()), of_experts) << name;
  const double scale = file.keys["adapter.lora.alpha"].get<double>() / static_cast<double>(rank);
  return product_of(floats_of(b), floats_of(a), experts, rank, scale);
}

struct Variant {
  explicit Variant(const std::string& name) {
    const fs::path folder = fs::path(RONDO_TEST_DATA) / "variants" / name;
    std::ifstream records(folder / "records.json");
    base = fs::path(RONDO_TEST_DATA) / "golden" / nlohmann::json::parse(records)["case"].get<std::string>() / "model";
    config = *model::load_config(base);
    if (config.experts) {  // as readers have it: no factor depends on that
      config.experts->normalised = normalises_shares(config.family);
      if (config.experts->clamped) config.experts->clamped = model::ClampedSwiglu{};
    }
    lora = *model::load_adapter_config(folder / "adapter");
    files = *model::open_factors(config, lora, folder / "adapter" / "adapter_model.safetensors");
  }
  ReadFile exported() const {
    const fs::path output = fresh_folder() / "a.gguf";
    const absl::Status written = export_adapter(Documents(base), config, lora, files, "f32", output);
    EXPECT_TRUE(written.ok()) << written;
    ReadFile file = read_gguf(output);
    EXPECT_TRUE(file.whole);
    return file;
  }
  fs::path base;
  model::ModelConfig config;
  model::LoraConfig lora;
  model::TensorFiles files;
};

void expect_close(const std::vector<float>& ours, const std::vector<float>& theirs, const std::string& name) {
  ASSERT_EQ(ours.size(), theirs.size()) << name;
  for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 1e-6) << name << " " << i;
}

class ExportExperts : public testing::TestWithParam<const char*> {};

TEST_P(ExportExperts, ReadersAddWhatTheAdapterAdds) {
  const Variant variant(GetParam());
  ReadFile file = variant.exported();
  std::size_t tensors = 0;
  for (const model::ExpertFactors& factors : model::expert_factors(variant.config, variant.lora)) {
    const bool router = factors.tensor.kind == model::ExpertTensor::Kind::kRouter;
    const bool down = factors.tensor.kind == model::ExpertTensor::Kind::kDown;
    const std::vector<const char*> names = router ? std::vector{"ffn_gate_inp"}
                                           : down ? std::vector{"ffn_down_exps"}
                                                  : std::vector{"ffn_gate_exps", "ffn_up_exps"};
    ASSERT_EQ(names.size(), factors.parts.size());
    for (std::size_t part = 0; part < names.size(); ++part) {
      const std::string name = "blk." + std::to_string(factors.tensor.layer) + "." + names[part] + ".weight";
      ASSERT_TRUE(file.tensors.contains(name + ".lora_b")) << name;
      expect_close(added_by(file, name, factors.experts),
                   product_of(values_of(variant.files, factors.parts[part].b), values_of(variant.files, factors.a),
                              factors.experts, factors.rank, factors.scale),
                   name);
      tensors += 2;
    }
  }
  EXPECT_GT(tensors, 0U);
  for (const model::LinearModule& linear : model::linear_modules(variant.config)) {
    if (variant.lora.adapts(linear)) tensors += 2;
  }
  EXPECT_EQ(file.tensors.size(), tensors);
}

INSTANTIATE_TEST_SUITE_P(Variants, ExportExperts, testing::Values("experts_down", "experts_inner", "experts_stacked"),
                         [](const auto& test_info) { return std::string(test_info.param); });

TEST(ExportAdapter, OfSeveralScales_HasTheRestInB) {
  const Variant variant("patterns");
  ReadFile file = variant.exported();
  std::set<double> scales;
  for (const auto& [theirs, ours] :
       {std::pair("self_attn.v_proj", "attn_v"), std::pair("self_attn.o_proj", "attn_output"),
        std::pair("mlp.up_proj", "ffn_up"), std::pair("mlp.down_proj", "ffn_down")}) {
    for (const char* layer : {"0", "1"}) {
      const std::string path = std::string("model.layers.") + layer + "." + theirs;
      if (!variant.files.find(model::adapter_tensor_name(path, 'A'))) continue;
      scales.insert(variant.lora.scale_of(path) * variant.lora.rank_of(path));
      const std::string name = std::string("blk.") + layer + "." + ours + ".weight";
      expect_close(added_by(file, name, 1),
                   product_of(values_of(variant.files, model::adapter_tensor_name(path, 'B')),
                              values_of(variant.files, model::adapter_tensor_name(path, 'A')), 1,
                              variant.lora.rank_of(path), variant.lora.scale_of(path)),
                   name);
    }
  }
  EXPECT_GT(scales.size(), 1U);
}

TEST(ExportAdapter, Dora_IsRefusedAndSaysToMerge) {
  const fs::path data = fs::path(RONDO_TEST_DATA) / "merge" / "dora";
  const model::ModelConfig config = *model::load_config(data / "base");
  const model::LoraConfig lora = *model::load_adapter_config(data / "adapter");
  const auto files = *model::TensorFiles::open_file(data / "adapter" / "adapter_model.safetensors");
  const fs::path output = fresh_folder() / "a.gguf";
  expect_refused(export_adapter(Documents(data / "base"), config, lora, files, "auto", output),
                 {"use_dora", "merge the adapter first"});
  EXPECT_FALSE(fs::exists(output));
}

TEST(ExportModel, OutputThatExists_IsLeftAsItIs) {
  const Model m = make_model("llama", fresh_folder());
  test::put(m.folder / "mine", "x");
  expect_refused(export_model(Documents(m.folder), m.config, m.files, "f32", m.folder / "mine"), {"mine", "exists"});
  EXPECT_EQ(fs::file_size(m.folder / "mine"), 1U);
}

TEST(ExportModel, NumberTooLarge_IsRefusedWithItsTensorAndNothingLeft) {
  const Model m = make_model("llama", fresh_folder());
  const fs::path changed = m.folder / "changed.safetensors";
  std::vector<model::TensorToWrite> tensors;
  for (const auto& [name, view] : m.files.tensors()) tensors.push_back({name, view.type, view.shape});
  const auto fill = [&](std::size_t i, std::span<std::byte> out) {
    std::vector<float> values = values_of(m.files, tensors[i].name);
    if (tensors[i].name == "lm_head.weight") values[7] = 1e6F;
    model::store_float32(values, tensors[i].type, out);
    return absl::OkStatus();
  };
  ASSERT_TRUE(model::write_safetensors(changed, tensors, {}, model::produce_whole(tensors, fill)).ok());
  const auto files = *model::TensorFiles::open_file(changed);
  const std::size_t before = entries_in(m.folder);
  expect_refused(export_model(Documents(m.folder), m.config, files, "f16", m.folder / "m.gguf"),
                 {"lm_head.weight", "f16"});
  EXPECT_EQ(entries_in(m.folder), before);
  EXPECT_TRUE(export_model(Documents(m.folder), m.config, files, "bf16", m.folder / "m.gguf").ok());
}

TEST(CheckExpressible, WhatReadersLack_IsRefusedByKey) {
  model::ModelConfig config;
  EXPECT_TRUE(check_expressible(config, "config.json").ok());
  config.activation = model::Activation::kGelu;
  expect_refused(check_expressible(config, "config.json"), {"config.json", "hidden_act"});
  config = {};
  config.rope.kind = model::RopeKind::kDynamic;
  expect_refused(check_expressible(config, "config.json"), {"rope_scaling", "dynamic"});
  config.rope.kind = model::RopeKind::kYarn;
  config.rope.factor = 4.0;
  EXPECT_TRUE(check_expressible(config, "config.json").ok());
  config.rope.beta_fast = 16.0;
  expect_refused(check_expressible(config, "config.json"), {"rope_scaling", "beta_fast"});
  config = {};
  config.family = model::Family::kQwen3;
  config.attention_bias = true;
  expect_refused(check_expressible(config, "config.json"), {"attention_bias"});
}

TEST(CheckExpressible, OfATextPart_WhatItsReadersLackIsRefused) {
  model::ModelConfig config = make_model("qwen2", fresh_folder()).config;
  config.picture_turns.emplace().pairs = {2, 2, 2};
  EXPECT_TRUE(check_expressible(config, "config.json").ok());
  config.rope.kind = model::RopeKind::kLlama3;
  expect_refused(check_expressible(config, "config.json"), {"config.json", "rope_scaling", "qwen2vl"});
  config.rope.kind = model::RopeKind::kDefault;
  config.head_dim *= 2;
  expect_refused(check_expressible(config, "config.json"), {"config.json", "head_dim"});
  config.picture_turns.reset();
  EXPECT_TRUE(check_expressible(config, "config.json").ok());
}

TEST(Stacked, OfATextPart_IsWhereTheModelsIs) {
  model::ModelConfig config = make_model("qwen3_moe", fresh_folder()).config;
  config.text_part = true;
  const auto place = stacked(config, "model.language_model.layers.1.mlp.experts.3.up_proj.weight");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->name, "blk.1.ffn_up_exps.weight");
  EXPECT_EQ(place->expert, 3U);
}

TEST(CheckExpressible, OfAFamilyThatNoFilesAreWrittenOf_IsRefusedByItsName) {
  for (const std::string family :
       {"hyperclovax", "mellum", "solar_open", "exaone_moe", "minimax_m2", "afmoe", "cwm", "ministral", "minicpm3",
        "nanochat", "granite_swa", "vaultgemma", "flex_olmo", "jais2"}) {
    model::InitOptions options;
    options.arch = family;
    const fs::path folder = fresh_folder() / "model";
    ASSERT_TRUE(model::init_model(options, folder).ok()) << family;
    const model::ModelConfig config = *model::load_config(folder);
    expect_refused(check_expressible(config, "config.json"), {"config.json", family, "GGUF files of this family"});
  }
}

TEST(CheckExpressible, WhatReadersTakeForGranted_IsRefusedByKeyWhereItDiffers) {
  const fs::path folder = fresh_folder();
  int number = 0;
  const auto refused = [&](const std::string& arch, const std::string& key,
                           const std::function<void(model::ModelConfig&)>& change) {
    model::ModelConfig config = make_model(arch, folder / std::to_string(++number)).config;
    EXPECT_TRUE(check_expressible(config, "config.json").ok()) << arch;
    change(config);
    expect_refused(check_expressible(config, "config.json"), {"config.json", key});
  };
  refused("ministral3", "rope_scaling", [](auto& config) { config.rope.kind = model::RopeKind::kDefault; });
  refused("ministral3", "rope_scaling", [](auto& config) { config.rope.mscale = 0.7; });
  refused("hunyuan_v1_dense", "attention_bias", [](auto& config) { config.attention_bias = true; });
  refused("arcee", "attention_bias", [](auto& config) { config.attention_output_bias = true; });
  refused("dots1", "num_key_value_heads", [](auto& config) { config.num_kv_heads = 2; });
  refused("olmoe", "num_key_value_heads", [](auto& config) { config.num_kv_heads = 2; });
  refused("arcee", "mlp_bias", [](auto& config) { config.mlp_bias = true; });
  for (const char* arch :
       {"hunyuan_v1_dense", "seed_oss", "ernie4_5", "ernie4_5_moe", "glm4", "glm4_moe", "lfm2", "lfm2_moe"}) {
    refused(arch, "rope_scaling", [](auto& config) { config.rope.kind = model::RopeKind::kLlama3; });
  }
  refused("ernie4_5", "attention_bias", [](auto& config) { config.attention_bias = true; });
  refused("seed_oss", "attention_out_bias", [](auto& config) { config.attention_output_bias = true; });
  refused("seed_oss", "mlp_bias", [](auto& config) { config.mlp_bias = true; });
  refused("exaone4", "sliding_window", [](auto& config) {
    config.sliding_window = {8, 8};
    config.without_rope = {false, false};
  });
  refused("smollm3", "no_rope_layers", [](auto& config) { config.without_rope[0] = true; });
  refused("smollm3", "use_sliding_window", [](auto& config) { config.sliding_window[3] = 8; });
  refused("granitemoehybrid", "position_embedding_type", [](auto& config) { config.without_rope = {true, true}; });
  refused("granitemoehybrid", "num_local_experts", [](auto& config) { config.experts.emplace().count = 8; });
  refused("granitemoe", "hidden_act", [](auto& config) { config.activation = model::Activation::kGelu; });
  refused("olmo2", "tie_word_embeddings", [](auto& config) { config.tie_word_embeddings = true; });
  refused("olmo2", "head_dim", [](auto& config) { config.head_dim = 8; });
  refused("lfm2", "head_dim", [](auto& config) { config.head_dim = 8; });
  refused("olmo2", "attention_bias", [](auto& config) { config.attention_bias = true; });
  refused("qwen2_moe", "norm_topk_prob", [](auto& config) { config.experts->normalised = true; });
  refused("qwen2_moe", "qkv_bias", [](auto& config) { config.attention_bias = false; });
  refused("qwen2_moe", "tie_word_embeddings", [](auto& config) { config.tie_word_embeddings = true; });
  refused("qwen2_moe", "head_dim", [](auto& config) { config.head_dim = 8; });
  refused("qwen3_moe", "norm_topk_prob", [](auto& config) { config.experts->normalised = false; });
  refused("olmoe", "norm_topk_prob", [](auto& config) { config.experts->normalised = true; });
  refused("qwen3_moe", "mlp_only_layers", [](auto& config) { config.experts->dense_blocks = {true, false}; });
  refused("glm4_moe", "n_group", [](auto& config) { config.experts->groups = 2; });
  refused("ernie4_5_moe", "moe_layer_interval", [](auto& config) { config.experts->dense_blocks = {false, true}; });
  refused("ernie4_5_moe", "attention_bias", [](auto& config) { config.attention_bias = true; });
  refused("lfm2_moe", "use_expert_bias", [](auto& config) { config.experts->choice_bias = false; });
  refused("lfm2_moe", "routed_scaling_factor", [](auto& config) { config.experts->factor = 1.5; });
  refused("lfm2_moe", "norm_topk_prob", [](auto& config) { config.experts->normalised = false; });
  refused("lfm2_moe", "head_dim", [](auto& config) { config.head_dim = 8; });
  refused("qwen3_moe", "num_experts", [](auto& config) { config.experts.reset(); });
  refused("qwen3_moe", "attention_bias", [](auto& config) { config.attention_bias = true; });
  refused("gpt_oss", "attention_bias",
          [](auto& config) { config.attention_bias = config.attention_output_bias = false; });
  refused("gpt_oss", "swiglu_limit", [](auto& config) { config.experts->clamped->limit = 6.0; });
  refused("gpt_oss", "layer_types", [](auto& config) { config.sliding_window[1] = 512; });
  refused("gpt_oss", "tie_word_embeddings", [](auto& config) { config.tie_word_embeddings = true; });
  refused("olmo3", "layer_types", [](auto& config) { config.sliding_window[0] = 0; });
  refused("olmo3", "rope_parameters", [](auto& config) { config.window_rope->theta = 3.0; });
  refused("gemma", "tie_word_embeddings", [](auto& config) { config.tie_word_embeddings = false; });
  refused("gemma", "hidden_act", [](auto& config) { config.activation = model::Activation::kSilu; });
  refused("gemma2", "attn_logit_softcapping", [](auto& config) { config.attention_cap = 0.0; });
  refused("gemma2", "final_logit_softcapping", [](auto& config) { config.logits_cap = 0.0; });
  refused("gemma2", "layer_types", [](auto& config) { config.sliding_window.assign(config.num_layers, 0); });
  refused("gemma3_text", "query_pre_attn_scalar", [](auto& config) { config.attention_scale = 0.3; });
  refused("gemma3_text", "rope_parameters", [](auto& config) {
    config.window_rope->factor = 2.0;
    config.window_rope->kind = model::RopeKind::kLinear;
  });
}

TEST(FrequencyDivisors, Llama3_KeepsHighAndDividesLowFrequencies) {
  model::ModelConfig config;
  config.head_dim = 128;
  config.rope.kind = model::RopeKind::kLlama3;
  config.rope.theta = 500000.0;
  config.rope.factor = 8.0;
  config.rope.original_max_positions = 8192;
  const std::vector<float> divisors = frequency_divisors(config);
  ASSERT_EQ(divisors.size(), 64U);
  EXPECT_EQ(divisors.front(), 1.0F);
  EXPECT_EQ(divisors.back(), 8.0F);
  // Dimension 31: wavelength 2 pi 500000^(62 / 128) = 3618.9, its share (8192 / 3618.9 - 1) / 3.
  const double wavelength = 2.0 * std::acos(-1.0) * std::pow(500000.0, 62.0 / 128.0);
  const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
  EXPECT_NEAR(divisors[31], 1.0 / ((1.0 - smooth) / 8.0 + smooth), 1e-5);
  EXPECT_TRUE(frequency_divisors(model::ModelConfig{}).empty());
}

TEST(ArchitectureKeys, SlidingWindow_CutsTheContext) {
  model::ModelConfig config;
  config.max_positions = 1000;
  config.sliding_window = {0, 64};
  const auto bytes_with = [&](std::uint32_t context) {
    const std::string name = "llama.context_length";
    return name + std::string("\4\0\0\0", 4) + std::string(reinterpret_cast<const char*>(&context), 4);
  };
  Keys cut;
  add_architecture_keys(config, cut);
  EXPECT_NE(cut.bytes().find(bytes_with(64)), std::string::npos);
  config.sliding_window = {0, 0};
  Keys full;
  add_architecture_keys(config, full);
  EXPECT_NE(full.bytes().find(bytes_with(1000)), std::string::npos);
}

}  // namespace
}  // namespace rondo::gguf
