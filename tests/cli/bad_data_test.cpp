// Bad data files.
#include "workspace.h"

namespace rondo::cli {
namespace {

/// Training on `bad.jsonl` with this text.
BadInput data(const char* name, const std::string& text, Words named, Words more = {}) {
  return {name,
          [text, more](const Workspace& workspace) {
            workspace.write("bad.jsonl", text);
            Words words = train({"--dataset=bad.jsonl"});
            words.insert(words.end(), more.begin(), more.end());
            return words;
          },
          std::move(named)};
}

constexpr const char* kGood = R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"
                              "\n";

class BadData : public testing::TestWithParam<BadInput> {};

TEST_P(BadData, Refused_WithFileAndRecord) { expect_refusal(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Files, BadData,
    testing::Values(command("Missing", train({"--dataset=nowhere.jsonl"}), {"nowhere.jsonl"}),
                    command("MissingForEvaluation", train({"--eval_dataset=nowhere.jsonl"}), {"nowhere.jsonl"}),
                    command("MissingToShow", {"data", "--model=model", "--dataset=nowhere.jsonl"}, {"nowhere.jsonl"}),
                    data("Empty", "", {"bad.jsonl"}), data("Blank", "\n\n  \n", {"bad.jsonl"}),
                    data("EmptyArray", "[]", {"bad.jsonl"}), data("ArrayOfNumbers", "[1, 2]", {"bad.jsonl"}),
                    data("BrokenArray", "[{\"text\": \"a\"},", {"bad.jsonl"}),
                    BadInput{"EmptyFolder",
                             [](const Workspace& workspace) {
                               std::filesystem::create_directory(workspace.path("empty"));
                               return train({"--dataset=empty"});
                             },
                             {"empty"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Records, BadData,
    testing::Values(
        data("BrokenLine", std::string(kGood) + "{\"messages\": [\n", {"bad.jsonl", "2"}),
        data("NoObject", std::string(kGood) + "3\n", {"bad.jsonl", "2"}),
        data("UnknownFields", "{\"question\": \"a\", \"answer\": \"b\"}\n", {"bad.jsonl"}),
        data("MessagesNoList", "{\"messages\": \"a\"}\n", {"bad.jsonl", "messages"}),
        data("MessageNoObject", "{\"messages\": [3]}\n", {"bad.jsonl", "messages"}),
        data("RoleMissing", "{\"messages\": [{\"content\": \"a\"}]}\n", {"bad.jsonl", "role"}),
        data("ContentMissing", "{\"messages\": [{\"role\": \"user\"}]}\n", {"bad.jsonl", "content"}),
        data("CompletionMissing", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n",
             {"bad.jsonl", "2", "completion"}),
        data("TextNoString", "{\"text\": 3}\n", {"bad.jsonl", "text"}),
        data("BrokenUtf8", "{\"text\": \"\xff\xfe\"}\n", {"bad.jsonl", "1"}),
        BadInput{"TextNotUtf8",
                 [](const Workspace& workspace) {
                   workspace.write("bad.txt", "abc \xff\xfe def\n");
                   return train({"--dataset=bad.txt"});
                 },
                 {"bad.txt", "not UTF-8 at byte 5"}},
        data("FormatsMixed", std::string(kGood) + "{\"text\": \"a\"}\n", {"bad.jsonl", "2"}),
        data("AnotherFormatThanAsked", kGood, {"bad.jsonl"}, {"--data_format=alpaca"}),
        data("OnlyPrompts", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", {"bad.jsonl", "target"}),
        data("NoTargetWithinCutoff", kGood, {"bad.jsonl", "target"}, {"--cutoff_len=3"}),
        data("EverythingHeldOut", kGood, {"val_size", "fewer than the 1 samples of bad.jsonl"}, {"--val_size=1"}),
        data("MoreHeldOutThanThereIs", kGood + std::string(kGood), {"val_size", "fewer than the 2 samples", "found 5"},
             {"--val_size=5"})),
    name_of);

}  // namespace
}  // namespace rondo::cli
