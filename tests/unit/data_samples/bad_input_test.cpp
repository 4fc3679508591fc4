// Whatever is wrong with a data file is told in one line that names the file, the place and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_support.h"

namespace rondo::data {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::load_model;
using testing_support::write;
using testing_support::write_data;

void expect_refused(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(part));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

struct BadFile {
  const char* name;
  std::string_view contents;
  const char* expected;  // part of the message
  const char* file = "data.jsonl";
};

std::string nested(std::size_t depth) {
  return R"({"text":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

const std::string kDeep = nested(100000);
constexpr std::string_view kZero("a\0b", 3);

const std::vector<BadFile> kBadFiles = {
    {"NotJson", "{\"text\":\"a\"}\n{\"text\": oops}\n", "data.jsonl line 2: not valid JSON at byte 10"},
    {"TrailingComma", "{\"text\":\"a\",}\n", "line 1"},
    {"TwoRecordsInALine", "{\"text\":\"a\"} {\"text\":\"b\"}\n", "line 1"},
    {"RecordOverSeveralLines", "{\n\"text\":\"a\"\n}\n", "JSON lines hold one whole record a line"},
    {"CutOff", "{\"text\":\"a", "line 1"},
    {"RawControlCharacter", "{\"text\":\"a\tb\"}", "line 1"},
    {"BrokenUtf8", "{\"text\":\"\xff\xfe\"}", "line 1"},
    {"LoneSurrogate", R"({"text":"\ud800"})", "line 1"},
    {"NotANumber", R"({"text":NaN})", "line 1"},
    {"WeightThatIsNoSwitch", R"({"messages":[{"role":"assistant","content":"a","weight":0.5}]})",
     "line 1 (messages): `messages[0].weight` is 0.5, expected 0 (not to be learned) or 1"},
    {"WeightOfAnotherKind", R"({"conversations":[{"from":"gpt","value":"a","weight":"none"}]})",
     "`conversations[0].weight` is a string, expected 0"},
    {"TooDeep", kDeep, "nests deeper than 100 levels"},
    {"Empty", "", "is empty"},
    {"OnlyWhiteSpace", " \n\r\n", "is empty"},
    {"Utf16", "\xff\xfe{", "UTF-16"},
    {"Gzip", "\x1f\x8b\x08", "gzip"},
    {"Parquet", "PAR1xxxx", "Parquet"},
    {"ZeroBytes", kZero, "zero bytes", "data.txt"},
    {"TextNotUtf8", "abc \xff\xfe def\n", "data.txt: not UTF-8 at byte 5 (0xff): save it as UTF-8", "data.txt"},
    {"MarkedTextNotUtf8",
     "\xef\xbb\xbf"
     "abc \xe9t\xe9",
     "data.txt: not UTF-8 at byte 8 (0xe9)", "data.txt"},
    {"TextEndsWithinACharacter", "abc \xc3", "data.txt: not UTF-8 at byte 5 (0xc3)", "data.txt"},
    {"NeitherObjectNorList", "hello\n", "expected JSON lines"},
    {"RecordIsANumber", "{\"text\":\"a\"}\n3\n", "line 2 (text): the record is the number 3, expected an object"},
    {"ArrayNotClosed", "[{\"text\":\"a\"}", "the list is not closed", "data.json"},
    {"ArrayTrailingComma", "[{\"text\":\"a\"},]", "element 2 (line 1): expected a record", "data.json"},
    {"ArrayDoubleComma", "[{\"text\":\"a\"},\n,{\"text\":\"b\"}]", "element 2 (line 2): expected a record",
     "data.json"},
    {"ArrayWrongBracket", "[{\"text\":\"a\"}}", "expected `]`", "data.json"},
    {"TextAfterTheArray", "[{\"text\":\"a\"}] x", "text follows", "data.json"},
    {"EmptyArray", "[]", "holds no records", "data.json"},
    {"ArrayElementBroken", "[{\"text\":\"a\"},\n{\"text\":}]", "data.json element 2 (line 2): not valid JSON",
     "data.json"},
    {"ArrayElementFieldWrong", "[{\"text\":\"a\"},\n{\"text\":1}]", "element 2 (line 2) (text): `text` is the number 1",
     "data.json"},
    {"UnknownKeys", R"({"question":"q","answer":"a"})", "line 1: the keys are `question`, `answer`, which is none"},
    {"NoKeys", "{}", "the keys are no keys"},
    {"OtherFormatLater", "{\"text\":\"a\"}\n{\"prompt\":\"p\",\"completion\":\"c\"}\n",
     "line 2 (text): `text` is missing, expected a string; the keys are `prompt`, `completion`"},
    {"TextIsNull", R"({"text":null})", "`text` is null, expected a string"},
    {"PromptIsAList", R"({"prompt":[],"completion":"c"})", "`prompt` is an empty list, expected a string"},
    {"CompletionIsAnObject", R"({"prompt":"p","completion":{}})", "`completion` is an object, expected a string"},
    {"MessagesNotAList", R"({"messages":"hi"})", "`messages` is a string, expected a list"},
    {"MessagesEmpty", R"({"messages":[]})", "`messages` is an empty list, expected at least one message"},
    {"MessageNotAnObject", R"({"messages":["hi"]})", "`messages[0]` is a string, expected an object"},
    {"RoleMissing", R"({"messages":[{"content":"hi"}]})", "`messages[0].role` is missing"},
    {"RoleNotAString", R"({"messages":[{"role":1,"content":"hi"}]})", "`messages[0].role` is the number 1"},
    {"RoleEmpty", R"({"messages":[{"role":"","content":"hi"}]})", "`messages[0].role` is an empty string"},
    {"ContentMissing", R"({"messages":[{"role":"user"}]})", "`messages[0].content` is missing"},
    {"ContentNull", R"({"messages":[{"role":"assistant","content":null}]})", "null in a message without tool_calls"},
    {"ContentNumber", R"({"messages":[{"role":"user","content":5}]})", "`messages[0].content` is the number 5"},
    {"ContentEmptyList", R"({"messages":[{"role":"user","content":[]}]})", "`messages[0].content` is an empty list"},
    {"ContentImage", R"({"messages":[{"role":"user","content":[{"type":"image","url":"x"}]}]})",
     "`messages[0].content[0].type` is \"image\""},
    {"ContentPartNotAnObject", R"({"messages":[{"role":"user","content":["x"]}]})", "`messages[0].content[0]`"},
    {"ContentPartWithoutText", R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
     "`messages[0].content[0].text` is missing"},
    {"ToolCallsNotAList", R"({"messages":[{"role":"assistant","content":"","tool_calls":{}}]})",
     "`messages[0].tool_calls`"},
    {"ToolCallNotAnObject", R"({"messages":[{"role":"assistant","tool_calls":[1]}]})", "`messages[0].tool_calls[0]`"},
    {"ToolsNotAList", R"({"messages":[{"role":"assistant","content":"a"}],"tools":7})", "`tools` is the number 7"},
    {"ToolsBrokenJson", R"({"messages":[{"role":"assistant","content":"a"}],"tools":"[{"})", "`tools`: not valid JSON"},
    {"NoAssistantAnywhere", R"({"messages":[{"role":"user","content":"hi"}]})",
     "none of the 1 records (messages) has a target token, 1 have no message with the role assistant"},
    {"OutputMissing", "{\"instruction\":\"a\",\"output\":\"b\"}\n{\"instruction\":\"a\"}",
     "line 2 (alpaca): `output` is missing"},
    {"HistoryWrong", R"({"instruction":"a","output":"b","history":[["q"]]})", "`history[0]`"},
    {"ConversationsEmpty", R"({"conversations":[]})", "`conversations` is an empty list"},
    {"FromUnknown", R"({"conversations":[{"from":"alien","value":"x"}]})", "`conversations[0].from` is \"alien\""},
    {"ValueMissing", R"({"conversations":[{"from":"gpt"}]})", "`conversations[0].value` is missing"},
    {"ValueNotAString", R"({"conversations":[{"from":"gpt","value":[1]}]})", "`conversations[0].value` is a list"},
    {"OnlyEmptyTexts", "{\"text\":\"\"}\n{\"text\":\"\"}\n", "none of the 2 records (text) has a target token"},
};

class BadInput : public testing::TestWithParam<BadFile> {};

TEST_P(BadInput, IsRefusedInOneLineThatNamesIt) {
  static const auto& model = *new testing_support::Model(load_model("chatml"));
  const auto path = write_data(GetParam().contents, GetParam().file);
  const auto dataset = load_dataset(path, model.renderer(), {});
  ASSERT_FALSE(dataset.ok());
  expect_refused(dataset.status(), GetParam().expected);
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(path.string()));
}

INSTANTIATE_TEST_SUITE_P(Files, BadInput, testing::ValuesIn(kBadFiles),
                         [](const auto& tested) { return tested.param.name; });

TEST(BadInputPaths, MissingFile_IsNamed) {
  const auto model = load_model("chatml");
  expect_refused(load_dataset("no/such.jsonl", model.renderer(), {}).status(), "no/such.jsonl: there is no such file");
}

TEST(BadInputPaths, FolderWithoutData_SaysWhatIsRead) {
  const auto model = load_model("chatml");
  const auto folder = testing_support::fresh_folder();
  write(folder / "data.parquet", "PAR1");
  expect_refused(load_dataset(folder, model.renderer(), {}).status(), "holds no data file");
}

TEST(BadInputPaths, FolderOfTwoFormats_NamesBoth) {
  const auto model = load_model("chatml");
  const auto folder = testing_support::fresh_folder();
  write(folder / "a.jsonl", R"({"text":"some text"})");
  write(folder / "b.txt", "plain text");
  expect_refused(load_dataset(folder, model.renderer(), {}).status(), "b.txt: is plain text, but");
  write(folder / "a.jsonl", R"({"text":"some text"})");
  std::filesystem::rename(folder / "b.txt", folder / "0.txt");
  expect_refused(load_dataset(folder, model.renderer(), {}).status(), "a.jsonl line 1: is text, but");
}

TEST(BadInputOptions, CutoffTooShort_IsRefused) {
  const auto model = load_model("chatml");
  DataOptions options;
  options.cutoff_len = 1;
  expect_refused(load_dataset(write_data(R"({"text":"a b"})"), model.renderer(), options).status(), "cutoff_len is 1");
}

TEST(BadInputOptions, CutoffBeforeEveryAnswer_SaysSo) {
  const auto model = load_model("chatml");
  DataOptions options;
  options.cutoff_len = 8;
  const auto path = write_data(R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]})");
  expect_refused(load_dataset(path, model.renderer(), options).status(), "every target lies beyond cutoff_len 8");
}

TEST(BadInputTemplate, NoTemplate_ConversationsAreRefusedAndTextIsNot) {
  auto model = load_model("chatml");
  model.chat_template.reset();
  const auto chat = write_data(R"({"messages":[{"role":"assistant","content":"yo"}]})");
  expect_refused(load_dataset(chat, model.renderer(), {}).status(),
                 "data.jsonl line 1: the model has no chat template");
  EXPECT_TRUE(load_dataset(write_data(R"({"text":"a b"})"), model.renderer(), {}).ok());
}

TEST(BadInputTemplate, TemplateRefusesTheRoles_ItsMessageIsShown) {
  const auto model = load_model("brackets");
  const auto path = write_data(R"({"messages":[{"role":"user","content":"a"},{"role":"critic","content":"b"}]})");
  expect_refused(load_dataset(path, model.renderer(), {}).status(), "unknown role critic");
}

}  // namespace
}  // namespace rondo::data
