// Tokenizers of the published kinds (tests/data/tokenizer) under GGUF's names.
#include "vocabulary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "cuts.h"
#include "files.h"
#include "reader.h"
#include "rondo/base/file.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::expect_refused;

fs::path folder_of(const std::string& name) { return fs::path(RONDO_TEST_DATA) / "tokenizer" / name; }

absl::StatusOr<ReadFile> keys_of(const fs::path& folder) {
  model::ModelConfig config;
  config.vocab_size = 1000;
  Keys keys;
  const absl::Status status = add_tokenizer_keys(Documents(folder), config, keys);
  if (!status.ok()) return status;
  const fs::path file = test::fresh_folder() / "keys.gguf";
  const absl::Status written =
      write_container(file, keys, {}, [](std::size_t, std::span<std::byte>) { return absl::OkStatus(); });
  if (!written.ok()) return written;
  return read_gguf(file);
}

TEST(Splitting, PublishedTokenizers_HaveNames) {
  const std::pair<const char*, const char*> kNames[] = {
      {"smollm2", "smollm"}, {"qwen", "qwen2"}, {"llama3", "llama-bpe"}, {"tekken", "tekken"}};
  for (const auto& [name, pre] : kNames) {
    absl::StatusOr<ReadFile> file = keys_of(folder_of(name));
    ASSERT_TRUE(file.ok()) << name << file.status();
    EXPECT_EQ(file->keys["tokenizer.ggml.pre"], pre);
    EXPECT_EQ(file->keys["tokenizer.ggml.model"], "gpt2");
    const Json model = Json::parse(*read_file(folder_of(name) / "tokenizer.json"), nullptr, false)["model"];
    EXPECT_EQ(file->keys["tokenizer.ggml.merges"].size(), model["merges"].size()) << name;
    EXPECT_EQ(file->keys["tokenizer.ggml.tokens"].size(), 1000U) << name;
  }
}

TEST(Splitting, ThatOfLlama3ByMergesAlone_HasAnotherName) {
  Json tokenizer = Json::parse(*read_file(folder_of("llama3") / "tokenizer.json"), nullptr, false);
  tokenizer["model"]["ignore_merges"] = false;
  const fs::path folder = test::fresh_folder();
  test::put(folder / "tokenizer.json", tokenizer.dump());
  absl::StatusOr<ReadFile> file = keys_of(folder);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->keys["tokenizer.ggml.pre"], "dbrx");
}

TEST(Splitting, CutAtBlanksThatAreNoMore_IsNone) {
  absl::StatusOr<ReadFile> file = keys_of(folder_of("gemma"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->keys["tokenizer.ggml.model"], "llama");
  EXPECT_EQ(file->keys["tokenizer.ggml.add_space_prefix"], false);
}

TEST(Splitting, CutsOfSeveralSteps_HaveTheirNames) {
  EXPECT_EQ(keys_of(folder_of("deepseek"))->keys["tokenizer.ggml.pre"], "deepseek-v3");
  // As readers write them and others of the same meaning; one that differs has none.
  Json tokenizer = Json::parse(*read_file(folder_of("deepseek") / "tokenizer.json"), nullptr, false);
  for (const char* name : {"deepseek-llm", "deepseek-coder", "youtu", "kimi-k2"}) {
    tokenizer["pre_tokenizer"] = Json::parse(cut_of(name).pre_tokenizer.dump());
    tokenizer["pre_tokenizer"]["pretokenizers"].back().erase("trim_offsets");
    tokenizer["model"]["ignore_merges"] = std::string_view(name) == "youtu";
    const fs::path folder = test::fresh_folder();
    test::put(folder / "tokenizer.json", tokenizer.dump());
    absl::StatusOr<ReadFile> file = keys_of(folder);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->keys["tokenizer.ggml.pre"], name);
  }
  tokenizer["pre_tokenizer"]["pretokenizers"].back()["use_regex"] = true;
  const fs::path folder = test::fresh_folder();
  test::put(folder / "tokenizer.json", tokenizer.dump());
  expect_refused(keys_of(folder).status(), {"tokenizer.json", "pre_tokenizer", "deepseek-v3"});
}

TEST(Splitting, UnnamedCut_IsRefused) {
  expect_refused(keys_of(folder_of("gpt2")).status(), {"tokenizer.json", "pre_tokenizer"});  // puts a blank first
  expect_refused(keys_of(folder_of("folding")).status(), {"tokenizer.json", "normalizer"});
}

TEST(SpecialTokens, PostProcessor_DecidesWhetherBosIsAdded) {
  EXPECT_EQ(keys_of(folder_of("llama3"))->keys["tokenizer.ggml.add_bos_token"], true);
  EXPECT_EQ(keys_of(folder_of("qwen"))->keys["tokenizer.ggml.add_bos_token"], false);
  EXPECT_EQ(keys_of(folder_of("llama3"))->keys["tokenizer.ggml.add_eos_token"], false);
}

using Score = std::function<std::optional<double>(const std::string& left, const std::string& right)>;

/// Joins the two neighbours of the highest score, the leftmost among equals, until none has one.
std::vector<std::string> joined(std::vector<std::string> parts, const Score& score) {
  while (true) {
    double best = -HUGE_VAL;
    std::size_t at = parts.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::optional<double> found = score(parts[i], parts[i + 1]);
      if (!found || *found <= best) continue;
      best = *found;
      at = i;
    }
    if (at == parts.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0U) == 0x80U && !parts.empty()) {
      parts.back() += c;
    } else {
      parts.emplace_back(1, c);
    }
  }
  return parts;
}

TEST(LlamaTokenizer, ScoresGiveTheSameTokensAsMerges) {
  for (const char* name : {"llama2", "mistral_v3", "gemma"}) {
    absl::StatusOr<ReadFile> file = keys_of(folder_of(name));
    ASSERT_TRUE(file.ok()) << name << file.status();
    EXPECT_EQ(file->keys["tokenizer.ggml.model"], "llama");
    EXPECT_EQ(file->keys["tokenizer.ggml.add_space_prefix"], name != std::string("gemma"));
    const Json& tokens = file->keys["tokenizer.ggml.tokens"];
    std::map<std::string, double> scores;
    std::map<int, int> kinds;
    std::vector<std::string> added;
    std::size_t compared = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const int kind = file->keys["tokenizer.ggml.token_type"][i].get<int>();
      ++kinds[kind];
      if (kind == 3 || kind == 4) added.push_back(tokens[i].get<std::string>());
      if (kind == 1) scores[tokens[i].get<std::string>()] = file->keys["tokenizer.ggml.scores"][i].get<double>();
    }
    EXPECT_EQ(kinds[6], 256) << name;
    EXPECT_EQ(kinds[2], 1) << name;
    EXPECT_TRUE(file->keys.contains("tokenizer.ggml.unknown_token_id")) << name;
    const Json model = Json::parse(*read_file(folder_of(name) / "tokenizer.json"), nullptr, false)["model"];
    std::map<std::pair<std::string, std::string>, double> ranks;
    std::vector<std::string> texts = {"\u2581the\u2581quick\u2581brown\u2581fox",
                                      "\u2581a\u2581caf\u00e9\u2581in\u2581town"};
    for (const Json& merge : model["merges"]) {
      std::string left = merge.is_array() ? merge[0].get<std::string>() : merge.get<std::string>();
      std::string right = merge.is_array() ? merge[1].get<std::string>() : left.substr(left.find(' ') + 1);
      if (merge.is_string()) left = left.substr(0, left.find(' '));
      texts.push_back(left + right);
      const double rank = static_cast<double>(ranks.size());
      ranks.try_emplace({std::move(left), std::move(right)}, -rank);
    }
    // A reader joins whatever makes a token, by its score; the tokenizer what the list of merges has, by its rank.
    const auto by_score = [&](const std::string& left, const std::string& right) {
      const auto found = scores.find(left + right);
      return found == scores.end() ? std::nullopt : std::optional<double>(found->second);
    };
    const auto by_rank = [&](const std::string& left, const std::string& right) {
      const auto found = ranks.find({left, right});
      return found == ranks.end() ? std::nullopt : std::optional<double>(found->second);
    };
    for (const std::string& text : texts) {
      // Added tokens are cut out of a text before anything is joined, here and there.
      const auto stands_in_text = [&](const std::string& token) { return text.find(token) != std::string::npos; };
      if (std::any_of(added.begin(), added.end(), stands_in_text)) continue;
      ++compared;
      EXPECT_EQ(joined(characters(text), by_score), joined(characters(text), by_rank)) << name << ": " << text;
    }
    EXPECT_GT(compared, 300U) << name;
  }
}

TEST(Vocabulary, LargerThanTheModels_IsRefused) {
  model::ModelConfig config;
  config.vocab_size = 100;
  Keys keys;
  expect_refused(add_tokenizer_keys(Documents(folder_of("qwen")), config, keys), {"tokenizer.json", "100"});
}

}  // namespace
}  // namespace rondo::gguf
