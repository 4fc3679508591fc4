// Tokenizers of the published kinds (tests/data/tokenizer) written as GGUF keys and read back: the same ids.
#include "import_tokenizer.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "container.h"
#include "cuts.h"
#include "files.h"
#include "rondo/base/documents.h"
#include "rondo/base/file.h"
#include "rondo/data/tokenizer.h"
#include "vocabulary.h"

namespace rondo::gguf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using data::Tokenizer;
using test::expect_refused;

fs::path folder_of(const std::string& name) { return fs::path(RONDO_TEST_DATA) / "tokenizer" / name; }

absl::StatusOr<Documents> read_back(const Keys& keys, std::uint32_t vocabulary) {
  const fs::path path = test::fresh_folder() / "t.gguf";
  const absl::Status written =
      write_container(path, keys, {}, [](std::size_t, std::span<std::byte>) { return absl::OkStatus(); });
  if (!written.ok()) return written;
  const auto file = open_stored_file(path);
  if (!file.ok()) return file.status();
  model::ModelConfig config;
  config.vocab_size = vocabulary;
  config.max_positions = 512;
  std::map<std::string, std::string> texts;
  const absl::Status read = import_tokenizer(*file, config, texts);
  if (!read.ok()) return read;
  return Documents(path, std::move(texts));
}

/// Texts of every kind: scripts, blanks, digits, line ends, tokens of the vocabulary, noise.
std::vector<std::string> texts_for(const Tokenizer& tokenizer) {
  std::vector<std::string> texts = {"",
                                    "Hello, world! It's 2024: 3.14159 and 1,000,000.",
                                    "  leading and trailing  ",
                                    "tabs\tand\r\nlines\n\n\nmore   blanks",
                                    "\u00dcber caf\u00e9 na\u00efve \u4f60\u597d\u4e16\u754c \u3053\u3093 \ud55c\uad6d "
                                    "\u0434\u0430 \u0639\u0631\u0628 \U0001f600\U0001f680",
                                    "def f(x):\n    return {'a': [x, 1]}  # don't",
                                    "a <0x41> b \u2581 c"};
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) {
      const auto id = static_cast<data::TokenId>(random() % tokenizer.size());
      text += tokenizer.decode(std::vector<data::TokenId>{id}, false);
    }
    texts.push_back(text);
  }
  return texts;
}

void expect_same(const Tokenizer& ours, const Tokenizer& theirs, const std::string& name) {
  for (const std::string& text : texts_for(theirs)) {
    for (const bool special : {false, true}) {
      const auto wanted = theirs.encode(text, special).ids;
      const auto found = ours.encode(text, special).ids;
      EXPECT_EQ(found, wanted) << name << ": " << text;
      for (const bool skip : {false, true}) EXPECT_EQ(ours.decode(found, skip), theirs.decode(wanted, skip)) << name;
    }
  }
}

TEST(ImportTokenizer, PublishedKinds_GiveTheSameIds) {
  const std::pair<const char*, std::optional<data::TokenId>> kKinds[] = {
      {"smollm2", std::nullopt}, {"qwen", std::nullopt}, {"llama3", 703}, {"tekken", 1}, {"llama2", 1}, {"gemma", 1}};
  for (const auto& [name, bos] : kKinds) {
    model::ModelConfig config;
    config.vocab_size = 1000;
    config.bos_token_id = bos;
    Keys keys;
    ASSERT_TRUE(add_tokenizer_keys(Documents(folder_of(name)), config, keys).ok()) << name;
    const auto documents = read_back(keys, 1000);
    ASSERT_TRUE(documents.ok()) << name << documents.status();
    const auto ours = Tokenizer::load(*documents);
    ASSERT_TRUE(ours.ok()) << name << ours.status();
    const auto theirs = Tokenizer::load(Documents(folder_of(name)));
    expect_same(*ours, *theirs, name);
    EXPECT_EQ(ours->size(), theirs->size()) << name;
    for (data::TokenId id = 0; id < static_cast<data::TokenId>(theirs->size()); ++id) {
      EXPECT_EQ(ours->token_of(id), theirs->token_of(id)) << name << id;
      EXPECT_EQ(ours->is_special(id), theirs->is_special(id)) << name << id;
    }
    EXPECT_EQ(ours->bos_token(), bos ? std::optional(theirs->token_of(*bos)) : std::nullopt) << name;
  }
}

/// What readers know as gemma4's goes by merges as they stand, with a bos whatever the file says.
TEST(ImportTokenizer, OfGemma4_GivesTheSameIds) {
  model::ModelConfig config;
  config.family = model::Family::kGemma4;
  config.vocab_size = 1000;
  config.bos_token_id = 1;
  // Its merges over the ends of lines are none of the published one's.
  const Json published = Json::parse(*read_file(folder_of("gemma") / "tokenizer.json"), nullptr, false);
  Json within = published;
  within["model"]["merges"] = Json::array();
  for (const Json& merge : published["model"]["merges"]) {
    if (merge.dump().find("\\n") == std::string::npos) within["model"]["merges"].push_back(merge);
  }
  EXPECT_LT(within["model"]["merges"].size(), published["model"]["merges"].size());
  const auto keys_of = [&](const Json& tokenizer) {
    const fs::path folder = test::fresh_folder();
    test::put(folder / "tokenizer.json", tokenizer.dump());
    Keys keys;
    EXPECT_TRUE(add_tokenizer_keys(Documents(folder), config, keys).ok());
    return std::pair(Tokenizer::load(Documents(folder)), keys);
  };
  const auto [theirs, keys] = keys_of(within);
  const auto states_merges = [](const Keys& of) { return of.bytes().find("ggml.merges") != std::string::npos; };
  EXPECT_TRUE(states_merges(keys));
  const auto documents = read_back(keys, 1000);
  ASSERT_TRUE(documents.ok()) << documents.status();
  const auto ours = Tokenizer::load(*documents);
  ASSERT_TRUE(ours.ok()) << ours.status();
  expect_same(*ours, *theirs, "gemma4");
  // Readers cut at the ends of lines and put a bos always: else scores say what is merged.
  EXPECT_FALSE(states_merges(keys_of(published).second));
  within["post_processor"] = nullptr;
  EXPECT_FALSE(states_merges(keys_of(within).second));
}

/// GPT-OSS cuts as Llama 4 does, and goes by merges alone.
TEST(ImportTokenizer, OfGptOss_GivesTheSameIds) {
  Json tokenizer = Json::parse(*read_file(folder_of("llama4") / "tokenizer.json"), nullptr, false);
  tokenizer["model"]["ignore_merges"] = false;
  const fs::path folder = test::fresh_folder();
  test::put(folder / "tokenizer.json", tokenizer.dump());
  const auto theirs = Tokenizer::load(Documents(folder));
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  model::ModelConfig config;
  config.vocab_size = 1000;
  Keys keys;
  ASSERT_TRUE(add_tokenizer_keys(Documents(folder), config, keys).ok());
  const auto documents = read_back(keys, 1000);
  ASSERT_TRUE(documents.ok()) << documents.status();
  const auto ours = Tokenizer::load(*documents);
  ASSERT_TRUE(ours.ok()) << ours.status();
  expect_same(*ours, *theirs, "gpt-4o");
}

/// A tokenizer of single bytes with one merge and this cut.
void add_small(Keys& keys, const std::string& pre) {
  keys.add("tokenizer.ggml.model", "gpt2");
  keys.add("tokenizer.ggml.pre", pre);
  keys.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "1", "<s>", "12", "2", "\u010a"});
  keys.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 1, 1, 3, 1, 1, 1});
  keys.add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "1 2"});
  keys.add("tokenizer.ggml.bos_token_id", std::uint32_t{4});
}

TEST(ImportTokenizer, Cuts_DecideWhatIsMerged) {
  // Three digits are one piece, two, or each its own; a line end is never merged.
  const std::pair<const char*, std::vector<data::TokenId>> kCuts[] = {
      {"gpt-2", {5, 2}},        {"llama-bpe", {4, 5, 2}}, {"qwen2", {3, 6, 2}},        {"smollm", {3, 6, 2}},
      {"tekken", {4, 3, 6, 2}}, {"deepseek-v3", {5, 2}},  {"deepseek-llm", {3, 6, 2}}, {"deepseek-coder", {3, 6, 2}},
      {"gpt-4o", {5, 2}},       {"glm4", {5, 2}},         {"youtu", {3, 6, 2}},        {"kimi-k2", {5, 2}}};
  for (const auto& [name, ids] : kCuts) {
    Keys keys;
    add_small(keys, name);
    const auto documents = read_back(keys, 8);
    ASSERT_TRUE(documents.ok()) << name << documents.status();
    const auto tokenizer = Tokenizer::load(*documents);
    ASSERT_TRUE(tokenizer.ok()) << name << tokenizer.status();
    EXPECT_EQ(tokenizer->encode("12ab", true).ids, ids) << name;
  }
}

TEST(ImportTokenizer, EveryCut_HasATokenizerThatLoads) {
  std::string names = cut_names() + ", ";
  std::size_t count = 0;
  for (std::size_t end = names.find(", "); end != std::string::npos;
       names = names.substr(end + 2), end = names.find(", ")) {
    Keys keys;
    add_small(keys, names.substr(0, end));
    const auto documents = read_back(keys, 8);
    ASSERT_TRUE(documents.ok()) << documents.status();
    EXPECT_TRUE(Tokenizer::load(*documents).ok()) << names.substr(0, end);
    ++count;
  }
  EXPECT_GT(count, 20U);
}

TEST(ImportTokenizer, DeepseekCuts_AreThePublishedOnes) {
  // tests/data/tokenizer/deepseek has the cut that is called deepseek-v3.
  const Json file = Json::parse(*read_file(folder_of("deepseek") / "tokenizer.json"), nullptr, false);
  const Json cut = Json::parse(cut_of("deepseek-v3").pre_tokenizer.dump());
  EXPECT_EQ(cut, file["pre_tokenizer"]);
}

TEST(ImportTokenizer, TemplateAndNames_AreHandedOn) {
  Keys keys;
  add_small(keys, "gpt-2");
  keys.add("tokenizer.chat_template", "{{ messages }}");
  keys.add("tokenizer.chat_template.tool_use", "{{ tools }}");
  keys.add("tokenizer.ggml.add_bos_token", true);
  keys.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  keys.add("tokenizer.ggml.add_eos_token", true);
  const auto documents = read_back(keys, 8);
  ASSERT_TRUE(documents.ok()) << documents.status();
  EXPECT_EQ(*documents->read("chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(*documents->read("additional_chat_templates/tool_use.jinja"), "{{ tools }}");
  const auto tokenizer = *Tokenizer::load(*documents);
  EXPECT_EQ(tokenizer.bos_token(), "<s>");
  EXPECT_EQ(tokenizer.eos_token(), "ab");
  EXPECT_EQ(tokenizer.encode("b", true).ids, (std::vector<data::TokenId>{4, 1, 2}));
}

TEST(ImportTokenizer, NoTokenizer_IsNone) {
  const auto documents = read_back(Keys(), 8);
  ASSERT_TRUE(documents.ok());
  EXPECT_FALSE(documents->has("tokenizer.json"));
  expect_refused(Tokenizer::load(*documents).status(), {"t.gguf", "tokenizer.json"});
}

absl::Status llama_with(const std::function<void(Keys&)>& add) {
  Keys keys;
  keys.add("tokenizer.ggml.model", "llama");
  keys.add("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "a", "b", "ab"});
  add(keys);
  return read_back(keys, 4).status();
}

TEST(ImportTokenizer, WhatIsWrong_IsNamed) {
  const auto refused = [](const std::function<void(Keys&)>& add, const std::vector<std::string>& parts) {
    Keys keys;
    add(keys);
    expect_refused(read_back(keys, 8).status(), parts);
  };
  refused([](Keys& keys) { add_small(keys, "brand-new"); }, {"t.gguf", "tokenizer.ggml.pre", "brand-new", "llama-bpe"});
  refused([](Keys& keys) { add_small(keys, "default"); }, {"tokenizer.ggml.pre", "default"});
  refused([](Keys& keys) { keys.add("tokenizer.ggml.model", "bert"); },
          {"tokenizer.ggml.model", "bert", "gpt2, llama, gemma4"});
  refused([](Keys& keys) { keys.add("tokenizer.ggml.model", "gpt2"); }, {"tokenizer.ggml.tokens"});
  refused(
      [](Keys& keys) {
        add_small(keys, "gpt-2");
        keys.add("tokenizer.ggml.padding_token_id", std::uint32_t{8});
      },
      {"tokenizer.ggml.padding_token_id", "below 8"});
  refused(
      [](Keys& keys) {
        keys.add("tokenizer.ggml.model", "gpt2");
        keys.add("tokenizer.ggml.pre", "gpt-2");
        keys.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
        keys.add("tokenizer.ggml.merges", std::vector<std::string>{"ab"});
      },
      {"tokenizer.ggml.merges", "element 0"});
  refused(
      [](Keys& keys) {
        keys.add("tokenizer.ggml.model", "gpt2");
        keys.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "\xff\xfe"});
      },
      {"tokenizer.ggml.tokens", "element 1", "UTF-8"});
  refused(
      [](Keys& keys) {
        keys.add("tokenizer.ggml.model", "gpt2");
        keys.add("tokenizer.ggml.tokens", std::vector<std::string>(9, "a"));
      },
      {"tokenizer.ggml.tokens", "found 9"});
  const auto no_scores = [](Keys&) {};
  expect_refused(llama_with(no_scores), {"tokenizer.ggml.scores", "found 0"});
  expect_refused(llama_with([](Keys& keys) {
                   keys.add("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, NAN});
                 }),
                 {"tokenizer.ggml.scores", "element 3"});
  expect_refused(llama_with([](Keys& keys) {
                   keys.add("tokenizer.ggml.scores", std::vector<float>(4));
                   keys.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{2});
                 }),
                 {"tokenizer.ggml.token_type", "found 1"});
}

TEST(CutOf, OtherNamesOfLlama3s_CutAsThat) {
  for (const char* name : {"falcon-h1", "lfm2", "pixtral"}) {
    const Cut cut = cut_of(name);
    EXPECT_EQ(cut.pre_tokenizer, cut_of("llama-bpe").pre_tokenizer) << name;
    EXPECT_TRUE(cut.ignores_merges) << name;
  }
}

}  // namespace
}  // namespace rondo::gguf
