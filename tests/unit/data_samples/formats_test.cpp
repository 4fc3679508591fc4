// Formats and containers: what is inferred, what may be overridden, and what becomes of every record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rondo/data/describe.h"
#include "test_support.h"

namespace rondo::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::load_model;
using testing_support::Model;
using testing_support::targets_of;
using testing_support::write;
using testing_support::write_data;

constexpr const char* kChat = R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]})";

class Formats : public testing::Test {
 protected:
  absl::StatusOr<Dataset> load(std::string_view contents, const DataOptions& options = {},
                               const std::string& name = "data.jsonl") const {
    return load_dataset(write_data(contents, name), model_.renderer(), options);
  }
  /// The whole text of sample `i`.
  std::string text(const Dataset& dataset, std::size_t i = 0) const {
    return model_.tokenizer->decode(dataset.samples[i].ids, false);
  }
  std::string targets(const Dataset& dataset, std::size_t i = 0) const {
    return targets_of(*model_.tokenizer, dataset.samples[i]);
  }
  const Model model_ = load_model("chatml");
};

TEST_F(Formats, Messages_AreRenderedByTheTemplateWithoutGenerationPrompt) {
  const auto dataset = load(kChat);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(text(*dataset),
            "<|im_start|>system\nYou answer briefly.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\nyo<|im_end|>\n");
  EXPECT_EQ(targets(*dataset), "yo<|im_end|>");
  EXPECT_EQ(dataset->report.format, "messages");
  EXPECT_EQ(dataset->report.container, "JSON lines");
}

TEST_F(Formats, Alpaca_JoinsInstructionAndInputByANewline) {
  const auto dataset = load(R"({"instruction":"Add","input":"1 2","output":"3","system":"Sums."})"
                            "\n"
                            R"({"instruction":"Go","input":"","output":"gone"})"
                            "\n"
                            R"({"instruction":"Go","output":"gone","system":null})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.format, "alpaca");
  EXPECT_EQ(text(*dataset),
            "<|im_start|>system\nSums.<|im_end|>\n<|im_start|>user\nAdd\n1 2<|im_end|>\n"
            "<|im_start|>assistant\n3<|im_end|>\n");
  EXPECT_THAT(text(*dataset, 1), HasSubstr("user\nGo<|im_end|>"));
  EXPECT_EQ(dataset->samples[1].ids, dataset->samples[2].ids);
}

TEST_F(Formats, AlpacaHistory_ComesBeforeTheInstruction) {
  const auto dataset = load(R"({"instruction":"c","output":"d","history":[["a","b"]]})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(targets(*dataset), "b<|im_end|>|d<|im_end|>");
}

TEST_F(Formats, ShareGpt_RolesAreTranslated) {
  const auto dataset = load(R"({"conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"},)"
                            R"({"from":"gpt","value":"a"},{"from":"observation","value":"o"},)"
                            R"({"from":"chatgpt","value":"b"},{"from":"user","value":"r"},)"
                            R"({"from":"assistant","value":"c"},{"from":"function","value":"f"}]})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.format, "sharegpt");
  EXPECT_EQ(text(*dataset),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
            "<|im_start|>tool\no<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
            "<|im_start|>assistant\nc<|im_end|>\n<|im_start|>tool\nf<|im_end|>\n");
  EXPECT_EQ(targets(*dataset), "a<|im_end|>|b<|im_end|>|c<|im_end|>");
}

TEST_F(Formats, ShareGptFunctionCall_BecomesAToolCall) {
  const Model thinker = load_model("thinker");
  const auto dataset = load_dataset(
      write_data(R"({"conversations":[{"from":"human","value":"q"},)"
                 R"({"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"}],"system":"s",)"
                 R"("tools":"[{\"name\":\"f\"}]"})"),
      thinker.renderer(), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::string whole = thinker.tokenizer->decode(dataset->samples[0].ids, false);
  EXPECT_THAT(whole, HasSubstr("Tools:\n{\"name\": \"f\"}<|im_end|>\n<|im_start|>system\ns<|im_end|>"));
  EXPECT_THAT(targets_of(*thinker.tokenizer, dataset->samples[0]),
              HasSubstr("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>"));
}

TEST_F(Formats, PromptCompletion_TargetsBeginAfterThePrompt) {
  const auto dataset = load(R"({"prompt":"Go on:","completion":" gone"})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.format, "prompt/completion");
  EXPECT_EQ(text(*dataset), "Go on: gone<|im_end|>");
  EXPECT_EQ(targets(*dataset), " gone<|im_end|>");
}

/// Letters a and b; a special token that is a tab; </s> behind every text; ranges without their white space.
constexpr const char* kTabs = R"({"version":"1.0",
  "added_tokens":[{"id":2,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,
    "special":true},{"id":3,"content":"\t","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,
    "special":true}],
  "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
  "post_processor":{"type":"Sequence","processors":[
    {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
    {"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},
      {"SpecialToken":{"id":"</s>","type_id":0}}],"pair":[],
      "special_tokens":{"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}}}]},
  "decoder":null,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
    "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
    "vocab":{"a":0,"b":1},"merges":[]}})";

TEST_F(Formats, PromptThatEndsWithAWhiteSpecialToken_IsMaskedWhole) {
  const auto tokenizer = Tokenizer::load(Documents("tabs", {{"tokenizer.json", kTabs}}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto dataset = load_dataset(write_data(R"({"prompt": "a\t", "completion": "b"}
{"prompt": "", "completion": "ab"})"),
                                    Renderer{&*tokenizer, nullptr}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(dataset->samples[0].ids, ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(dataset->samples[0].labels, ElementsAre(kMasked, kMasked, 1, 2));
  EXPECT_THAT(dataset->samples[1].labels, ElementsAre(0, 1, 2));
}

TEST_F(Formats, NamedTokens_ReachTheTemplate) {
  const auto tokenizer = Tokenizer::load(Documents(
      "tabs", {{"tokenizer.json", kTabs}, {"tokenizer_config.json", R"({"eos_token": "</s>", "sep_token": "a"})"}}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const nlohmann::ordered_json context = template_context(*tokenizer);
  EXPECT_EQ(context.value("eos_token", ""), "</s>");
  EXPECT_EQ(context.value("sep_token", ""), "a");
  EXPECT_FALSE(context.contains("bos_token"));
}

TEST_F(Formats, Text_IsAllTargets) {
  const auto dataset = load(R"({"text":"Go on"})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.format, "text");
  EXPECT_EQ(targets(*dataset), "Go on<|im_end|>");
  EXPECT_EQ(dataset->report.target_tokens, dataset->samples[0].ids.size() - 1);  // position 0 is never predicted
}

TEST_F(Formats, SeveralFormatsKeys_ConversationsWin) {
  const auto dataset = load(R"({"prompt":"hi","text":"x","messages":[{"role":"assistant","content":"yo"}]})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.format, "messages");
}

TEST_F(Formats, Override_TakesTheNamedFormat) {
  DataOptions options;
  options.format = DataFormat::kText;
  const auto dataset = load(R"({"text":"x y","messages":[{"role":"assistant","content":"yo"}]})", options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(text(*dataset), "x y<|im_end|>");
  options.format = DataFormat::kPlainText;
  const auto plain = load(kChat, options);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(text(*plain), std::string(kChat) + "<|im_end|>");
}

TEST_F(Formats, JsonArray_GivesTheSameSamples) {
  const auto lines = load(std::string(kChat) + "\n" + kChat + "\n");
  const auto array = load("\n [" + std::string(kChat) + " ,\n" + kChat + "\n]\n", {}, "data.json");
  ASSERT_TRUE(lines.ok() && array.ok()) << lines.status() << array.status();
  EXPECT_EQ(array->report.container, "JSON array");
  ASSERT_EQ(array->samples.size(), 2U);
  EXPECT_EQ(array->samples[1].ids, lines->samples[1].ids);
  EXPECT_EQ(array->samples[1].index, 1U);
}

TEST_F(Formats, LineEnds_OnlyALineFeedCounts) {
  const auto dataset = load("\xef\xbb\xbf{\"text\":\"one\u2028two\u0085three\"}\r\n\r\n  \n{\"text\":\"four\"}");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->samples.size(), 2U);
  EXPECT_EQ(text(*dataset), "one\u2028two\u0085three<|im_end|>");
  EXPECT_EQ(text(*dataset, 1), "four<|im_end|>");
}

TEST_F(Formats, PlainText_IsCutIntoSamplesWithoutLoss) {
  DataOptions options;
  options.cutoff_len = 5;
  const std::string contents = "The cat sat on the mat.\n\nThe dog ran to the other side.\n";
  const auto dataset = load(contents, options, "book.txt");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.format, "plain text");
  EXPECT_EQ(dataset->report.container, "text");
  std::vector<TokenId> joined;
  for (const Sample& sample : dataset->samples) {
    EXPECT_LE(sample.ids.size(), 5U);
    EXPECT_EQ(sample.labels, sample.ids);
    joined.insert(joined.end(), sample.ids.begin(), sample.ids.end());
  }
  EXPECT_EQ(model_.tokenizer->decode(joined, false), contents + "<|im_end|>");
}

TEST_F(Formats, TextThatBeginsLikeJson_IsPlainTextUnlessItsNameSaysJson) {
  const auto notes = load("[1] A note, not JSON.\n", {}, "notes.txt");
  ASSERT_TRUE(notes.ok()) << notes.status();
  EXPECT_EQ(notes->report.format, "plain text");
  EXPECT_FALSE(load("[1] A note, not JSON.\n", {}, "notes.json").ok());
  const auto lines = load(kChat, {}, "lines.txt");
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->report.format, "messages");
}

TEST_F(Formats, Table_IsTextOnlyWhereThatIsSaid) {
  for (const char* name : {"table.csv", "table.tsv"}) {
    const auto guessed = load("prompt,completion\na,b\n", {}, name);
    ASSERT_FALSE(guessed.ok()) << name;
    EXPECT_THAT(std::string(guessed.status().message()),
                testing::AllOf(testing::HasSubstr(name), testing::HasSubstr("convert it to JSON lines")));
    const auto lines = load(kChat, {}, name);
    ASSERT_TRUE(lines.ok()) << lines.status();
    EXPECT_EQ(lines->report.format, "messages");
    DataOptions options;
    options.format = DataFormat::kPlainText;
    const auto asked = load("prompt,completion\na,b\n", options, name);
    ASSERT_TRUE(asked.ok()) << asked.status();
    EXPECT_EQ(text(*asked, 0), "prompt,completion\na,b\n<|im_end|>");
  }
}

TEST_F(Formats, Folder_IsReadInNameOrder) {
  const auto folder = testing_support::fresh_folder();
  write(folder / "b.jsonl", R"({"text":"second"})");
  write(folder / "a.json", R"([{"text":"first"}])");
  write(folder / "README.md", "not data");
  write(folder / "._b.jsonl", "what a file manager has left");
  const auto dataset = load_dataset(folder, model_.renderer(), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->samples.size(), 2U);
  EXPECT_EQ(text(*dataset, 0), "first<|im_end|>");
  EXPECT_EQ(text(*dataset, 1), "second<|im_end|>");
  EXPECT_EQ(dataset->samples[1].index, 1U);
}

TEST_F(Formats, CutoffLen_KeepsTheHeadAndCounts) {
  const auto whole = load(R"({"text":"The cat sat on the mat and the dog ran."})");
  DataOptions options;
  options.cutoff_len = 4;
  const auto cut = load(R"({"text":"The cat sat on the mat and the dog ran."})", options);
  ASSERT_TRUE(whole.ok() && cut.ok());
  std::vector<TokenId> head = whole->samples[0].ids;
  head.resize(4);
  EXPECT_EQ(cut->samples[0].ids, head);
  EXPECT_EQ(cut->samples[0].labels, cut->samples[0].ids);
  EXPECT_EQ(cut->report.truncated, 1U);
  EXPECT_EQ(cut->report.longest, 4U);
  EXPECT_EQ(whole->report.truncated, 0U);
}

TEST_F(Formats, SamplesWithoutTarget_AreLeftOutCountedAndNamed) {
  const std::string user_only = R"({"messages":[{"role":"user","content":"hi"}]})";
  const std::string long_prompt = R"({"messages":[{"role":"user","content":")" + std::string(400, 'x') +
                                  R"("},{"role":"assistant","content":"yo"}]})";
  DataOptions options;
  options.cutoff_len = 100;
  const auto dataset = load(user_only + "\n" + kChat + "\n" + long_prompt + "\n", options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.records, 3U);
  EXPECT_EQ(dataset->report.kept, 1U);
  EXPECT_EQ(dataset->report.without_target, 2U);
  EXPECT_EQ(dataset->report.truncated, 0U);  // of samples that are kept
  EXPECT_THAT(dataset->report.first_without_target, ElementsAre(0, 2));
  EXPECT_EQ(dataset->samples[0].index, 1U);
  EXPECT_THAT(describe_report(dataset->report), HasSubstr("2 samples have no target and are left out: record 0, 2"));
}

TEST_F(Formats, OneToken_IsNoTarget) {
  // Labels are shifted by one: the only token of an empty text, its end, is predicted by nothing.
  const auto dataset = load("{\"text\":\"\"}\n{\"text\":\"some\"}");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(dataset->report.first_without_target, ElementsAre(0));
}

TEST_F(Formats, TrainOnPrompt_MakesEveryTokenATarget) {
  DataOptions options;
  options.train_on_prompt = true;
  for (const char* line : {kChat, R"({"prompt":"Go on:","completion":" gone"})",
                           R"({"messages":[{"role":"user","content":"no answer"}]})"}) {
    const auto dataset = load(line, options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->samples[0].labels, dataset->samples[0].ids);
  }
}

TEST_F(Formats, MaxSamples_ReadsThatManyRecords) {
  DataOptions options;
  options.max_samples = 2;
  const auto dataset = load("{\"text\":\"a b\"}\n{\"text\":\"c d\"}\nnot read\n", options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->report.records, 2U);
}

TEST_F(Formats, ListOfTextParts_IsTheirText) {
  const auto dataset = load(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
                            R"({"type":"text","text":"b"}]},{"role":"assistant",)"
                            R"("content":[{"type":"text","text":"yo"}]}]})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(text(*dataset), HasSubstr("user\nab<|im_end|>"));
  EXPECT_EQ(targets(*dataset), "yo<|im_end|>");
}

TEST_F(Formats, SpecialTokensInTheText_AreParsed) {
  const auto dataset = load(R"({"text":"a<|im_start|>b"})");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto id = model_.tokenizer->id_of("<|im_start|>");
  ASSERT_TRUE(id.has_value());
  EXPECT_THAT(dataset->samples[0].ids, testing::Contains(*id));
}

TEST_F(Formats, Report_CountsTokensAndTargets) {
  const auto dataset = load(std::string(kChat) + "\n" + kChat + "\n");
  ASSERT_TRUE(dataset.ok());
  const std::size_t length = dataset->samples[0].ids.size();
  EXPECT_EQ(dataset->report.tokens, 2 * length);
  EXPECT_EQ(dataset->report.longest, length);
  EXPECT_EQ(dataset->report.target_tokens, make_batch(*dataset, std::vector<std::uint32_t>{0, 1}).target_tokens);
}

}  // namespace
}  // namespace rondo::data
