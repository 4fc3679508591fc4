// Linear attention in files: where rows and columns of heads lie, which numbers are written otherwise, and adapters.
#include <cmath>
#include <cstring>

#include "files.h"
#include "names.h"
#include "names_linear.h"
#include "reader.h"
#include "rondo/base/file.h"
#include "rondo/gguf/export.h"
#include "rondo/gguf/import.h"
#include "rondo/model/config_documents.h"
#include "rondo/model/fused_linears.h"
#include "rondo/model/parameters.h"
#include "rondo/model/stored_weights.h"
#include "row_order.h"
#include "small_model.h"
#include "stored_file.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using test::expect_refused;
using test::fresh_folder;

constexpr std::size_t kHidden = 48;
constexpr std::size_t kSize = 8;  // of a head, of keys and of values
constexpr std::size_t kKeyHeads = 2;
constexpr std::size_t kValueHeads = 6;

/// Value heads lie in models as (key head, number), in files as (number, key head).
constexpr std::size_t kHeadAt[] = {0, 3, 1, 4, 2, 5};

Model make_model(const std::string& arch, std::uint32_t layers = 4) {
  model::InitOptions options = options_of(arch, kHidden, 64);
  options.num_hidden_layers = layers;
  options.num_attention_heads = kValueHeads;
  options.num_key_value_heads = kKeyHeads;
  const fs::path folder = fresh_folder() / "model";
  EXPECT_TRUE(model::init_model(options, folder).ok());
  const model::ModelConfig config = *model::load_config(folder);
  return {folder, config, *model::open_weights(config, folder)};
}

/// As the files of the model have it, whatever its parts are called here.
std::vector<float> stored_values(const Model& m, const std::string& name) {
  return values_of(*model::TensorFiles::open_file(m.folder / "model.safetensors"), name);
}

/// Rows of `width` numbers: the first `kept`, then those of each value head in the order of files, `rows` a head.
std::vector<float> in_order_of_files(const std::vector<float>& values, std::size_t width, std::size_t kept,
                                     std::size_t rows) {
  std::vector<float> moved(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(kept * width));
  for (const std::size_t head : kHeadAt) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>((kept + head * rows) * width);
    moved.insert(moved.end(), begin, begin + static_cast<std::ptrdiff_t>(rows * width));
  }
  return moved;
}

fs::path exported(const Model& m) {
  fs::path output = m.folder.parent_path() / "m.gguf";
  const absl::Status status = export_model(Documents(m.folder), m.config, m.files, "f32", output);
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

ReadFile export_of(const Model& m) { return read_gguf(exported(m)); }

/// The same number in the place of the one behind the first `name`, `gap` bytes after it.
template <typename Number>
void overwrite(std::string& bytes, const std::string& name, std::size_t gap, Number number) {
  const std::size_t place = bytes.find(name);
  ASSERT_NE(place, std::string::npos) << name;
  std::memcpy(bytes.data() + place + name.size() + gap, &number, sizeof number);
}

/// A key of an integer as it stands in a file.
std::string key_bytes(const std::string& name, std::uint32_t value) {
  const std::uint64_t size = name.size();
  const std::uint32_t type = 4;
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += name;
  bytes.append(reinterpret_cast<const char*>(&type), sizeof type);
  return bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST(Order, OfAStretch_TurnsRowsIntoColumns) {
  const Order order{.kept = 1, .stretches = 2, .outer = 2, .inner = 3, .width = 2};
  constexpr std::uint64_t kPlaces = 27;  // two stretches of 13, of which 12 are moved
  const std::vector<std::uint64_t> expected = {0,  1,  2,  7,  8,  3,  4,  9,  10, 5,  6,  11, 12, 13,
                                               14, 15, 20, 21, 16, 17, 22, 23, 18, 19, 24, 25, 26};
  for (std::uint64_t place = 0; place < kPlaces; ++place) {
    EXPECT_EQ(source_place(place, kPlaces, order), expected[place]) << place;
    EXPECT_EQ(stored_place(expected[place], kPlaces, order), place) << place;
    EXPECT_EQ(source_place(place, kPlaces, {}), place);
  }
  EXPECT_TRUE(suits(order, kPlaces));
  EXPECT_TRUE(suits({}, 3));
  EXPECT_FALSE(suits(order, kPlaces + 1));
  EXPECT_FALSE(suits(order, 11));
  EXPECT_FALSE(suits(order, 0));
}

TEST(LinearAttention, Exported_HasValueHeadsByTurns) {
  for (const char* arch : {"qwen3_5_text", "qwen3_5_moe_text"}) {
    const Model m = make_model(arch);
    const ReadFile file = export_of(m);
    const auto ours = [&](const char* name) { return floats_of(file.tensors.at(std::string("blk.1.") + name)); };
    const auto theirs = [&](const char* name) {
      return stored_values(m, std::string("model.layers.1.linear_attn.") + name);
    };
    constexpr std::size_t kKeys = 2 * kKeyHeads * kSize;  // rows of queries and keys
    EXPECT_EQ(ours("attn_qkv.weight"), in_order_of_files(theirs("in_proj_qkv.weight"), kHidden, kKeys, kSize));
    EXPECT_EQ(ours("ssm_conv1d.weight"), in_order_of_files(theirs("conv1d.weight"), 4, kKeys, kSize));
    EXPECT_EQ(file.tensors.at("blk.1.ssm_conv1d.weight").sizes, (std::vector<std::uint64_t>{4, 80}));
    EXPECT_EQ(ours("attn_gate.weight"), in_order_of_files(theirs("in_proj_z.weight"), kHidden, 0, kSize));
    EXPECT_EQ(ours("ssm_alpha.weight"), in_order_of_files(theirs("in_proj_a.weight"), kHidden, 0, 1));
    EXPECT_EQ(ours("ssm_beta.weight"), in_order_of_files(theirs("in_proj_b.weight"), kHidden, 0, 1));
    EXPECT_EQ(ours("ssm_dt.bias"), in_order_of_files(theirs("dt_bias"), 1, 0, 1));
    EXPECT_EQ(ours("ssm_norm.weight"), theirs("norm.weight"));
    std::vector<float> decay = theirs("A_log");
    for (float& value : decay) value = -std::exp(value);
    EXPECT_EQ(ours("ssm_a"), in_order_of_files(decay, 1, 0, 1));
    std::vector<float> columns;
    const std::vector<float> out = theirs("out_proj.weight");
    for (std::size_t row = 0; row < kHidden; ++row) {
      const auto begin = out.begin() + static_cast<std::ptrdiff_t>(row * kValueHeads * kSize);
      const std::vector<float> moved = in_order_of_files({begin, begin + kValueHeads * kSize}, 1, 0, kSize);
      columns.insert(columns.end(), moved.begin(), moved.end());
    }
    EXPECT_EQ(ours("ssm_out.weight"), columns);
    // Norms of the block have the one that they add, a head's queries and gate lie as they do in models.
    std::vector<float> norm = stored_values(m, "model.layers.1.post_attention_layernorm.weight");
    for (float& value : norm) value += 1.0F;
    EXPECT_EQ(ours("post_attention_norm.weight"), norm);
    EXPECT_EQ(floats_of(file.tensors.at("blk.3.attn_q.weight")),
              stored_values(m, "model.layers.3.self_attn.q_proj.weight"));
  }
}

TEST(LinearAttention, Keys_DescribeIt) {
  const Model m = make_model("qwen3_5_moe_text");
  ReadFile file = export_of(m);
  const auto key = [&](const char* name) { return file.keys[std::string("qwen35moe.") + name]; };
  EXPECT_EQ(key("ssm.conv_kernel"), 4);
  EXPECT_EQ(key("ssm.state_size"), kSize);
  EXPECT_EQ(key("ssm.group_count"), kKeyHeads);
  EXPECT_EQ(key("ssm.time_step_rank"), kValueHeads);
  EXPECT_EQ(key("ssm.inner_size"), kValueHeads * kSize);
  EXPECT_EQ(key("full_attention_interval"), 4);
  EXPECT_EQ(key("rope.dimension_count"), 2);  // a quarter of 8
  EXPECT_EQ(key("rope.dimension_sections"), (nlohmann::json{1, 0, 0, 0}));
  EXPECT_EQ(key("expert_shared_feed_forward_length"), m.config.experts->shared_width);
  EXPECT_EQ(file.keys.count("qwen35moe.feed_forward_length"), 0U);
}

TEST(LinearAttention, OfQwen3Next_HasQueriesKeysAndValuesTogetherAndTheGateApart) {
  const Model m = make_model("qwen3_next");
  const ReadFile file = export_of(m);
  const std::string module = "model.layers.1.linear_attn.";
  std::vector<float> behind;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const std::vector<float> rows = values_of(m.files, module + part + ".weight");
    behind.insert(behind.end(), rows.begin(), rows.end());
  }
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.attn_qkv.weight")), behind);
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.attn_gate.weight")), values_of(m.files, module + "z_proj.weight"));
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.ssm_ba.weight")), stored_values(m, module + "in_proj_ba.weight"));
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.ssm_dt.bias")), stored_values(m, module + "dt_bias"));
  EXPECT_EQ(file.keys.count("qwen3next.rope.dimension_sections"), 0U);
}

TEST(LinearAttention, BlocksThatPredictFurtherTokens_ArePassedOver) {
  const Model m = make_model("qwen3_5_text", 5);
  const fs::path file = exported(m);
  std::string bytes = *read_file(file);
  // Behind the head, in as many bytes as leave the data aligned.
  const std::string more = key_bytes("qwen35.nextn_predict_layers", 1) + key_bytes("extra", 0);
  ASSERT_EQ(more.size(), 64U);
  bytes.insert(24, more);
  std::uint64_t keys = 0;
  std::memcpy(&keys, bytes.data() + 16, sizeof keys);
  keys += 2;
  std::memcpy(bytes.data() + 16, &keys, sizeof keys);
  test::put(file, bytes);
  const auto documents = import_documents(file);
  ASSERT_TRUE(documents.ok()) << documents.status();
  const model::ModelConfig config = *model::load_config(*documents);
  EXPECT_EQ(config.num_layers, 4U);
  const auto tensors = import_tensors(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_TRUE(model::check_model_tensors(config, *tensors).ok());
  const std::string name = "model.layers.3.self_attn.o_proj.weight";
  EXPECT_EQ(values_of(*tensors, name), values_of(m.files, name));
}

TEST(LinearAttention, FilesWhoseNumbersCannotBe_AreRefused) {
  const Model m = make_model("qwen3_5_text");
  const fs::path file = exported(m);
  const std::string good = *read_file(file);
  std::string bytes = good;
  overwrite(bytes, "qwen35.ssm.inner_size", 4, std::uint32_t{40});
  test::put(file, bytes);
  expect_refused(import_documents(file).status(), {"qwen35.ssm.inner_size", "expected 48, 6 heads of 8, found 40"});
  bytes = good;
  overwrite(bytes, "qwen35.ssm.group_count", 4, std::uint32_t{4});
  test::put(file, bytes);
  expect_refused(import_documents(file).status(), {"linear_num_value_heads", "multiple of linear_num_key_heads"});
  // Of the first block's decays the second.
  test::put(file, good);
  const auto opened = open_stored_file(file);
  const auto at = reinterpret_cast<const char*>(opened->tensors.at("blk.0.ssm_a").data.data()) -
                  reinterpret_cast<const char*>(opened->head.data());
  bytes = good;
  const float positive = 0.25F;
  std::memcpy(bytes.data() + at + sizeof positive, &positive, sizeof positive);
  test::put(file, bytes);
  expect_refused(import_tensors(file).status(), {"blk.0.ssm_a", "expected negative numbers"});
}

/// An adapter with numbers of its own in every factor, beside the model that it is for.
struct Adapter {
  model::LoraConfig lora;
  fs::path file;
};
Adapter adapter_of(const Model& m, const std::vector<std::string>& targets) {
  Adapter adapter;
  adapter.lora.rank = 2;
  adapter.lora.alpha = 4;
  adapter.lora.targets = targets;
  adapter.file = m.folder.parent_path() / "adapter_model.safetensors";
  model::WritePlan plan;
  std::vector<std::vector<float>> numbers;
  float next = 0;
  for (const model::LinearModule& linear : model::linear_modules(m.config)) {
    if (!adapter.lora.adapts(linear)) continue;
    const auto add = [&](char factor, std::vector<std::uint64_t> shape) {
      std::vector<float>& values = numbers.emplace_back(shape[0] * shape[1]);
      for (float& value : values) value = next += 1.0F;
      plan.tensors.push_back(
          {model::adapter_tensor_name(linear.path, factor), model::WeightType::kFloat32, std::move(shape)});
    };
    add('A', {2, linear.in});
    add('B', {linear.out, 2});
  }
  plan.produce = [numbers](std::size_t index, const model::TensorSink& sink) {
    return sink(std::as_bytes(std::span(numbers[index])));
  };
  EXPECT_TRUE(model::write_safetensors(adapter.file, plan.tensors, {}, plan.produce).ok());
  return adapter;
}

TEST(LinearAttention, AdapterExported_MovesRowsOfBAndColumnsOfA) {
  const Model m = make_model("qwen3_5_text");
  const Adapter adapter = adapter_of(m, {"in_proj_qkv", "in_proj_z", "in_proj_a", "out_proj", "q_proj"});
  const auto files = *model::open_factors(m.config, adapter.lora, adapter.file);
  const fs::path output = m.folder.parent_path() / "a.gguf";
  ASSERT_TRUE(export_adapter(Documents(m.folder), m.config, adapter.lora, files, "f32", output).ok());
  const ReadFile file = read_gguf(output);
  const auto plain = *model::TensorFiles::open_file(adapter.file);
  const auto ours = [&](const char* name) { return floats_of(file.tensors.at(std::string("blk.") + name)); };
  const auto theirs = [&](const char* module, char factor) {
    return values_of(plain, model::adapter_tensor_name(std::string("model.layers.") + module, factor));
  };
  constexpr std::size_t kKeys = 2 * kKeyHeads * kSize;
  EXPECT_EQ(ours("0.attn_qkv.weight.lora_a"), theirs("0.linear_attn.in_proj_qkv", 'A'));
  EXPECT_EQ(ours("0.attn_qkv.weight.lora_b"),
            in_order_of_files(theirs("0.linear_attn.in_proj_qkv", 'B'), 2, kKeys, kSize));
  EXPECT_EQ(ours("0.attn_gate.weight.lora_b"), in_order_of_files(theirs("0.linear_attn.in_proj_z", 'B'), 2, 0, kSize));
  EXPECT_EQ(ours("0.ssm_alpha.weight.lora_b"), in_order_of_files(theirs("0.linear_attn.in_proj_a", 'B'), 2, 0, 1));
  EXPECT_EQ(ours("0.ssm_out.weight.lora_b"), theirs("0.linear_attn.out_proj", 'B'));
  const std::vector<float> a = theirs("0.linear_attn.out_proj", 'A');
  std::vector<float> columns = in_order_of_files({a.begin(), a.begin() + kHidden}, 1, 0, kSize);
  const std::vector<float> second = in_order_of_files({a.begin() + kHidden, a.end()}, 1, 0, kSize);
  columns.insert(columns.end(), second.begin(), second.end());
  EXPECT_EQ(ours("0.ssm_out.weight.lora_a"), columns);
  EXPECT_EQ(ours("3.attn_q.weight.lora_b"), theirs("3.self_attn.q_proj", 'B'));
}

TEST(LinearAttention, AdapterOfQwen3Next_HasAWithBothPartsOfTheFusedLayer) {
  const Model m = make_model("qwen3_next");
  const Adapter adapter = adapter_of(m, {"in_proj_qkvz", "in_proj_ba"});
  const auto files = *model::open_factors(m.config, adapter.lora, adapter.file);
  const fs::path output = m.folder.parent_path() / "a.gguf";
  ASSERT_TRUE(export_adapter(Documents(m.folder), m.config, adapter.lora, files, "f32", output).ok());
  const ReadFile file = read_gguf(output);
  const auto plain = *model::TensorFiles::open_file(adapter.file);
  const std::string fused = "model.layers.1.linear_attn.in_proj_qkvz";
  const std::vector<float> a = values_of(plain, model::adapter_tensor_name(fused, 'A'));
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.attn_qkv.weight.lora_a")), a);
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.attn_gate.weight.lora_a")), a);
  // Of each head of keys 8 rows of q, 8 of k, 24 of v and 24 of z.
  const std::vector<float> b = values_of(plain, model::adapter_tensor_name(fused, 'B'));
  const auto rows = [&](std::size_t head, std::size_t first, std::size_t count, std::vector<float>& to) {
    const auto begin = b.begin() + static_cast<std::ptrdiff_t>((head * 64 + first) * 2);
    to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(count * 2));
  };
  std::vector<float> behind;
  for (const auto& [first, count] : {std::pair{0, 8}, std::pair{8, 8}, std::pair{16, 24}}) {
    for (std::size_t head = 0; head < kKeyHeads; ++head) {
      rows(head, static_cast<std::size_t>(first), static_cast<std::size_t>(count), behind);
    }
  }
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.attn_qkv.weight.lora_b")), behind);
  std::vector<float> gate;
  for (std::size_t head = 0; head < kKeyHeads; ++head) rows(head, 40, 24, gate);
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.attn_gate.weight.lora_b")), gate);
  EXPECT_EQ(floats_of(file.tensors.at("blk.1.ssm_ba.weight.lora_b")),
            values_of(plain, model::adapter_tensor_name("model.layers.1.linear_attn.in_proj_ba", 'B')));
}

TEST(LinearAttention, WhatReadersHaveOtherwise_IsRefused) {
  Model m = make_model("qwen3_5_text");
  const auto refused = [&](const char* part) {
    expect_refused(export_model(Documents(m.folder), m.config, m.files, "f32", m.folder / "no.gguf"), {part});
  };
  m.config.linear_attention->blocks = {true, false, false, true};
  refused("layer_types");
  m.config.linear_attention->blocks = {true, true, true, true};
  EXPECT_EQ(full_attention_interval(*m.config.linear_attention), 5U);
  m.config.linear_attention->value_size = 16;
  refused("linear_value_head_dim");
}

}  // namespace
}  // namespace rondo::gguf
