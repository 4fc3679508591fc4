// Where a model's template is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "rondo/data/chat_template.h"

namespace rondo::data {
namespace {

using ::testing::HasSubstr;

class TemplateLoad : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("rondo_template_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const char* name, std::string_view text) const { std::ofstream(folder_ / name, std::ios::binary) << text; }
  std::string rendered(const nlohmann::ordered_json& context = {{"x", 1}}) const {
    const auto loaded = ChatTemplate::load(folder_);
    if (!loaded.ok()) return "error: " + std::string(loaded.status().message());
    if (!loaded->has_value()) return "none";
    const auto text = (*loaded)->render(context);
    return text.ok() ? *text : "refused: " + std::string(text.status().message());
  }

  std::filesystem::path folder_;
};

TEST_F(TemplateLoad, BothFiles_Loaded_TheTemplateFileWins) {
  write("chat_template.jinja", "file {{ x }}\n");
  write("tokenizer_config.json", R"({"chat_template": "config {{ x }}"})");
  EXPECT_EQ(rendered(), "file 1");
}

TEST_F(TemplateLoad, TextInTheConfig_Loaded_IsUsed) {
  write("tokenizer_config.json", R"({"chat_template": "config {{ x }}"})");
  EXPECT_EQ(rendered(), "config 1");
}

TEST_F(TemplateLoad, ListInTheConfig_Loaded_UsesTheDefault) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d{{ x }}"}]})");
  EXPECT_EQ(rendered(), "d1");
}

TEST_F(TemplateLoad, TemplateForTools_RendersConversationsWithTools) {
  const nlohmann::ordered_json without = {{"x", 1}, {"tools", nullptr}};
  const nlohmann::ordered_json with = {{"x", 1}, {"tools", nlohmann::ordered_json::array({"f"})}};
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t{{ x }}"}]})");
  EXPECT_EQ(rendered(without), "d");
  EXPECT_EQ(rendered(with), "t1");
  write("chat_template.jinja", "file");
  EXPECT_EQ(rendered(with), "file");
  std::filesystem::create_directories(folder_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "beside {{ tools[0] }}");
  EXPECT_EQ(rendered(without), "file");
  EXPECT_EQ(rendered(with), "beside f");
  write("additional_chat_templates/tool_use.jinja", "{{ }}");  // of which nobody hears who has no tools
  EXPECT_EQ(rendered(without), "file");
  EXPECT_THAT(rendered(with), HasSubstr("tool_use.jinja"));
}

TEST_F(TemplateLoad, NoTemplate_Loaded_IsNothing) {
  EXPECT_EQ(rendered(), "none");
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_EQ(rendered(), "none");
}

TEST_F(TemplateLoad, WrongConfig_Loaded_NamesTheFile) {
  for (const char* const text :
       {"[1]", "{", R"({"chat_template": 1})", R"({"chat_template": [1]})",
        R"({"chat_template": [{"name": "default"}]})", R"({"chat_template": [{"name": "other", "template": "x"}]})"}) {
    write("tokenizer_config.json", text);
    EXPECT_THAT(rendered(), HasSubstr("error: ")) << text;
    EXPECT_THAT(rendered(), HasSubstr("tokenizer_config.json")) << text;
  }
}

TEST_F(TemplateLoad, SyntaxError_Loaded_NamesFileAndLine) {
  write("chat_template.jinja", "a\n{{ }}");
  EXPECT_THAT(rendered(), HasSubstr("chat_template.jinja"));
  EXPECT_THAT(rendered(), HasSubstr("line 2"));
}

}  // namespace
}  // namespace rondo::data
