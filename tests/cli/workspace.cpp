// The workspace of the tests of bad input.
#include "workspace.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace rondo::cli {
namespace {

constexpr const char* kChats =
    R"({"messages":[{"role":"user","content":"Name a colour."},{"role":"assistant","content":"Blue."}]}
{"messages":[{"role":"user","content":"Name a fruit."},{"role":"assistant","content":"Pear."}]}
{"messages":[{"role":"user","content":"Name a tree."},{"role":"assistant","content":"Oak."}]}
)";

}  // namespace

Workspace::Workspace() {
  std::string pattern = testing::TempDir() + "/rondo_cli_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no folder " << pattern;
  folder_ = pattern;
  const Outcome made = run({"init", "--arch", "llama", "--output_dir", "model", "--dtype", "fp32", "--seed", "7"});
  EXPECT_EQ(made.status, 0) << made.err;
  write("chats.jsonl", kChats);
}

Workspace::~Workspace() { std::filesystem::remove_all(folder_); }

void Workspace::write(const std::string& name, const std::string& text) const {
  std::filesystem::create_directories(path(name).parent_path());
  std::ofstream(path(name), std::ios::binary) << text;
}

void Workspace::edit(const std::string& name, const std::string& from, const std::string& to) const {
  std::string text = read(name);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << name << " does not hold " << from;
  write(name, text.replace(at, from.size(), to));
}

void Workspace::end_not_finite(const std::string& name) const {
  std::string file = read(name);
  write(name, file.replace(file.size() - 8, 8, std::string(8, '\xff')));
}

void Workspace::edit_header(const std::string& name, const std::string& from, const std::string& to) const {
  const std::string file = read(name);
  std::uint64_t length = 0;
  ASSERT_GE(file.size(), sizeof length);
  std::memcpy(&length, file.data(), sizeof length);
  std::string header = file.substr(sizeof length, length);
  const std::size_t at = header.find(from);
  ASSERT_NE(at, std::string::npos) << name << " does not hold " << from;
  header.replace(at, from.size(), to);
  const std::uint64_t changed = header.size();
  std::string bytes(sizeof changed, '\0');
  std::memcpy(bytes.data(), &changed, sizeof changed);
  write(name, bytes + header + file.substr(sizeof length + length));
}

std::map<std::string, std::string> Workspace::snapshot() const {
  std::map<std::string, std::string> files;
  std::error_code ignored;  // a link that leads to itself is no file
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    files[entry.path().string()] =
        entry.is_regular_file(ignored) ? slurp(entry.path().string()) : std::string("no file");
  }
  return files;
}

nlohmann::json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  nlohmann::json json = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << outcome.out;
  return json;
}

bool has_device(const Workspace& workspace, const std::string& name) {
  const nlohmann::json devices = json_of(workspace.run({"devices", "--json"})).at("devices");
  return std::ranges::any_of(devices, [&](const nlohmann::json& device) { return device.at("name") == name; });
}

std::vector<nlohmann::json> metrics_of(const Workspace& workspace, const std::string& out) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(workspace.read(out + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line, nullptr, false));
  return lines;
}

double eval_loss(const Workspace& workspace, const Words& of) {
  Words words = {"eval", "--eval_dataset=chats.jsonl", "--devices=cpu", "--dtype=fp32", "--json"};
  words.insert(words.end(), of.begin(), of.end());
  const nlohmann::json json = json_of(workspace.run(words));
  return json.is_object() ? json.value("eval_loss", 0.0) : 0.0;
}

Words train(const Words& more) {
  Words words = {"train",
                 "--model",
                 "model",
                 "--dataset",
                 "chats.jsonl",
                 "--output_dir",
                 "out",
                 "--max_steps",
                 "1",
                 "--cutoff_len",
                 "64",
                 "--devices",
                 "cpu",
                 "--dtype",
                 "fp32",
                 "--gradient_accumulation_steps",
                 "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_refusal(const BadInput& bad) {
  const Workspace workspace;
  const Words arguments = bad.prepare(workspace);
  const auto before = workspace.snapshot();
  const Outcome outcome = workspace.run(arguments);
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, testing::StartsWith("error: "));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_THAT(outcome.err, testing::EndsWith("\n"));
  for (const std::string& word : bad.named) EXPECT_THAT(outcome.err, testing::HasSubstr(word));
  const auto after = workspace.snapshot();
  for (const auto& [path, contents] : after) {
    const auto found = before.find(path);
    if (found == before.end()) {
      ADD_FAILURE() << "left behind: " << path;
    } else {
      EXPECT_EQ(found->second == contents, true) << "changed: " << path;
    }
  }
  EXPECT_GE(after.size(), before.size());
}

}  // namespace rondo::cli
