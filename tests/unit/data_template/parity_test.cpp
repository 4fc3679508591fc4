// Every template and snippet under tests/data/template against what Jinja2 itself made of it
// (tests/reference/template).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "rondo/data/chat_template.h"

namespace rondo::data {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path data_folder() { return std::filesystem::path(RONDO_TEST_DATA) / "template"; }

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Json read_json(const char* name) { return Json::parse(read(data_folder() / name), nullptr, false); }

std::string fnv1a(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

absl::StatusOr<std::string> render(const std::string& source, const Json& context) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->render(context);
}

/// Empty when the result is as expected.
std::string difference(const absl::StatusOr<std::string>& actual, const Json& expected) {
  const std::string found = actual.ok() ? *actual : std::string(actual.status().message());
  if (expected.contains("error")) return actual.ok() ? "expected an error, found: " + found : "";
  if (expected.contains("raised")) {
    const bool same = !actual.ok() && found.find(expected["raised"].get<std::string>()) != std::string::npos;
    return same ? "" : "expected it to raise " + expected.dump() + ", found: " + found;
  }
  if (!actual.ok()) return "failed: " + found;
  if (expected.contains("text")) {
    const auto text = expected["text"].get<std::string>();
    return found == text ? "" : "expected:\n" + text + "\nfound:\n" + found;
  }
  const bool same =
      found.size() == expected["bytes"].get<std::size_t>() && fnv1a(found) == expected["hash"].get<std::string>();
  return same ? "" : "the hash differs, found:\n" + found;
}

TEST(TemplateParity, EveryConversation_EachPublishedStyle_RendersAsJinja2) {
  const Json conversations = read_json("conversations.json");
  const Json renderings = read_json("renderings.json");
  ASSERT_GE(conversations.size(), 40U);
  ASSERT_GE(renderings.size(), 12U);
  for (const auto& [name, results] : renderings.items()) {
    const auto parsed = ChatTemplate::parse(read(data_folder() / "templates" / name));
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.status();
    ASSERT_EQ(results.size(), conversations.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(difference(parsed->render(conversations[i]), results[i]), "") << name << ", conversation " << i;
    }
  }
}

TEST(TemplateParity, EverySnippet_Rendered_GivesWhatJinja2Gives) {
  const Json snippets = read_json("snippets.json");
  ASSERT_GE(snippets["cases"].size(), 400U);
  for (const Json& expected : snippets["cases"]) {
    const auto source = expected["template"].get<std::string>();
    EXPECT_EQ(difference(render(source, snippets["context"]), expected), "") << source;
  }
}

}  // namespace
}  // namespace rondo::data
