// What Tokenizer::load refuses, and with which words; names of special tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "small_file.h"

namespace rondo::data {
namespace {

using testing::HasSubstr;

std::string refusal(const Json& file) {
  const auto tokenizer = load_json(file);
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(tokenizer.status().message());
  EXPECT_THAT(message, HasSubstr("tokenizer.json: "));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

struct Change {
  const char* name;
  const char* pointer;
  const char* value;
  const char* expected;
};

class Refused : public testing::TestWithParam<Change> {};

TEST_P(Refused, OneFieldChanged_IsNamed) {
  Json file = small_file();
  file[Json::json_pointer(GetParam().pointer)] = Json::parse(GetParam().value);
  EXPECT_THAT(refusal(file), HasSubstr(GetParam().expected));
}

constexpr Change kChanges[] = {
    {"Version", "/version", R"("2.0")", "version: expected 1.0, found '2.0'"},
    {"Model", "/model/type", R"("Unigram")", "model: the model 'Unigram' is not supported"},
    {"ModelNull", "/model", "null", "model: expected an object, found null"},
    {"Dropout", "/model/dropout", "0.1", "model.dropout: random merges"},
    {"Suffix", "/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix"},
    {"Prefix", "/model/continuing_subword_prefix", R"("##")", "model.continuing_subword_prefix"},
    {"Unknown", "/model/unk_token", R"("<unk>")", "model.unk_token: '<unk>' is not in the vocabulary"},
    {"Vocabulary", "/model/vocab", "[]", "model.vocab: expected an object, found array"},
    {"IdNegative", "/model/vocab/a", "-1", "model.vocab['a']: expected a token id"},
    {"IdHuge", "/model/vocab/a", "4000000000", "model.vocab['a']: expected a token id"},
    {"IdText", "/model/vocab/a", R"("1")", "model.vocab['a']: expected a token id"},
    {"Merges", "/model/merges", "{}", "model.merges: expected an array, found object"},
    {"MergeThree", "/model/merges/1", R"("a b c")", "model.merges[1]: expected two tokens"},
    {"MergeNumber", "/model/merges/1", "[1, 2]", "model.merges[1]: expected two tokens"},
    {"MergeMissing", "/model/merges/1", R"(["a", "x"])", "model.merges[1]: the token 'x' is not in the vocabulary"},
    {"MergeResult", "/model/merges/1", R"(["b", "a"])", "model.merges[1]: the token 'ba' is not in the vocabulary"},
    {"Flag", "/model/ignore_merges", "1", "model.ignore_merges: expected true or false"},
    {"Normalizer", "/normalizer", R"({"type": "Nmt"})", "normalizer: the component 'Nmt' is not supported"},
    {"NormalizerText", "/normalizer", R"("NFC")", "normalizer: expected an object, found string"},
    {"NormalizerInside", "/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Bert"}]})",
     "normalizer.normalizers[1]: the component 'Bert'"},
    {"ReplaceContent", "/normalizer", R"({"type": "Replace", "pattern": {"String": "a"}})",
     "normalizer.content: expected a string, found null"},
    {"PreTokenizer", "/pre_tokenizer", R"({"type": "BertPreTokenizer"})", "the component 'BertPreTokenizer'"},
    {"PreTokenizerNoType", "/pre_tokenizer", "{}", "pre_tokenizer.type: expected a string"},
    {"Regex", "/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a("}, "behavior": "Isolated",
      "invert": false})",
     "pre_tokenizer.pattern: "},
    {"RegexUnsupported", "/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a)\\1"},
      "behavior": "Isolated", "invert": false})",
     "a back reference"},
    {"Behavior", "/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Eaten",
      "invert": false})",
     "pre_tokenizer.behavior: unknown behavior 'Eaten'"},
    {"Metaspace", "/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})",
     "pre_tokenizer.replacement: expected one character"},
    {"Scheme", "/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
     "pre_tokenizer.prepend_scheme"},
    {"PostProcessor", "/post_processor", R"({"type": "BertProcessing"})", "the component 'BertProcessing'"},
    {"TemplateToken", "/post_processor/single/0/SpecialToken/id", R"("<x>")", "'<x>' is not among special_tokens"},
    {"TemplateSequence", "/post_processor/single/1/Sequence/id", R"("B")", "expected the sequence A"},
    {"TemplateIds", "/post_processor/special_tokens/<s>/ids/0", R"("9")", "expected a token id"},
    {"Decoder", "/decoder", R"({"type": "WordPiece"})", "decoder: the component 'WordPiece' is not supported"},
    {"DecoderStrip", "/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})", "decoder.start"},
    {"AddedContent", "/added_tokens/1/content", "7", "added_tokens[1].content: expected a string"},
    {"AddedFlag", "/added_tokens/1/special", "null", "added_tokens[1].special: expected true or false"},
    {"AddedShape", "/added_tokens", "{}", "added_tokens: expected an array"},
};

INSTANTIATE_TEST_SUITE_P(Fields, Refused, testing::ValuesIn(kChanges),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(TokenizerLoad, FileMissing_NamesIt) {
  const auto tokenizer = Tokenizer::load(Documents(std::filesystem::path(testing::TempDir()) / "rondo_no_such_folder"));
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer.json"));
}

TEST(TokenizerLoad, SequencesNestedTooDeeply_AreRefused) {
  Json inner = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i) inner = {{"type", "Sequence"}, {"normalizers", Json::array({inner})}};
  Json file = small_file();
  file["normalizer"] = inner;
  EXPECT_THAT(refusal(file), HasSubstr("nested too deeply"));
}

TEST(TokenizerLoad, TokensAlikeOnceNormalized_AreRefused) {
  Json file = small_file();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"][0]["normalized"] = true;
  file["added_tokens"][1]["normalized"] = true;
  file["added_tokens"][1]["content"] = "<S>";
  EXPECT_THAT(refusal(file), HasSubstr("two tokens stand for the text '<s>'"));
}

TEST(TokenizerLoad, FileCutShort_IsRefusedAtEveryLength) {
  const std::string whole = small_file().dump();
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_FALSE(Tokenizer::load(Documents(folder_with(whole.substr(0, size)))).ok()) << size;
  }
}

// Whatever a damaged file holds, it is refused or it loads: what loads must be able to encode.
TEST(TokenizerLoad, BytesChangedAtRandom_NeverCrashes) {
  const std::string whole = small_file().dump();
  std::uint64_t state = 11;
  const auto next = [&](std::size_t bound) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(state >> 33U) % bound;
  };
  constexpr std::string_view kBytes = "\"{}[]:,0159-.eE\\ntrufalse<>\x80\xFF abG";
  int loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    const std::size_t changes = 1 + next(3);
    for (std::size_t i = 0; i < changes; ++i) damaged[next(damaged.size())] = kBytes[next(kBytes.size())];
    const auto tokenizer = Tokenizer::load(Documents(folder_with(damaged)));
    if (!tokenizer.ok()) continue;
    ++loaded;
    const Encoded encoded = tokenizer->encode("abc de<s> \xC3\xA9", true);
    (void)tokenizer->decode(encoded.ids, true);
    EXPECT_EQ(encoded.ids.size(), encoded.ranges.size());
  }
  EXPECT_GT(loaded, 100);
}

TEST(TokenizerNames, TextObjectAndNull_AreRead) {
  const auto folder = folder_with(small_file().dump());
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token": "<s>", "eos_token": {"content": "</s>"},
    "pad_token": null})";
  std::ofstream(folder / "config.json") << R"({"pad_token_id": 9})";
  const auto tokenizer = Tokenizer::load(Documents(folder));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  EXPECT_EQ(tokenizer->pad_token(), std::nullopt);
  EXPECT_EQ(tokenizer->unk_token(), std::nullopt);
}

TEST(TokenizerNames, OnlyTheModelsConfiguration_NamesByIds) {
  const auto folder = folder_with(small_file().dump());
  std::ofstream(folder / "config.json") << R"({"bos_token_id": 9, "eos_token_id": [10, 9], "pad_token_id": 99})";
  const auto tokenizer = Tokenizer::load(Documents(folder));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->eos_token(), "<t>");
  EXPECT_EQ(tokenizer->pad_token(), std::nullopt);
}

TEST(TokenizerNames, SpecialTokensMap_CountsUnlessTheConfigurationListsTheTokens) {
  const auto folder = folder_with(small_file().dump());
  std::ofstream(folder / "special_tokens_map.json") << R"({"eos_token": {"content": "</s>"}, "sep_token": "<s>"})";
  const auto names = [&](const char* configuration) {
    std::ofstream(folder / "tokenizer_config.json") << configuration;
    const auto tokenizer = Tokenizer::load(Documents(folder));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    return tokenizer.ok() ? tokenizer->named_tokens() : std::map<std::string, std::string>();
  };
  using Names = std::map<std::string, std::string>;
  EXPECT_EQ(names(R"({"bos_token": "<s>", "eos_token": "<t>", "extra_special_tokens": {"image_token": "<t>"}})"),
            (Names{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"image_token", "<t>"}, {"sep_token", "<s>"}}));
  EXPECT_EQ(names(R"({"eos_token": "<t>", "added_tokens_decoder": {}})"), (Names{{"eos_token", "<t>"}}));
}

TEST(TokenizerNames, NameOfAnotherType_IsRefused) {
  const auto folder = folder_with(small_file().dump());
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": 7})";
  const auto tokenizer = Tokenizer::load(Documents(folder));
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer_config.json: eos_token: expected"));
}

}  // namespace
}  // namespace rondo::data
