// The configurations in examples/: each fits the card that it names, and each trains a small model.
#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "workspace.h"

namespace rondo::cli {
namespace {

namespace fs = std::filesystem;

/// The files that are configurations of runs.
std::vector<std::string> examples() {
  std::vector<std::string> names;
  std::error_code elsewhere;  // not run from the checkout: the suite is then empty, which fails
  for (const auto& entry : fs::directory_iterator("examples", elsewhere)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".yaml") && name != "hosts.yaml") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// The words after `rondo` of the line of a file that holds "rondo plan".
Words planned(const std::string& text) {
  const std::size_t at = text.find("rondo plan ");
  EXPECT_NE(at, std::string::npos) << text;
  std::istringstream line(text.substr(at + 6, text.find('\n', at) - at - 6));
  return {std::istream_iterator<std::string>(line), {}};
}

class Example : public testing::TestWithParam<std::string> {};

TEST_P(Example, PlanForItsCards_FitsAndUsesThem) {
  const std::string text = slurp("examples/" + GetParam());
  const Words words = planned(text);
  EXPECT_THAT(words, testing::Contains("examples/" + GetParam()));
  const Outcome outcome = run(words, fs::current_path().string());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("unused"), std::string::npos) << outcome.out;
}

TEST_P(Example, SmallModel_Trains) {
  const Workspace workspace;
  const bool mixed = GetParam().find("mixed") != std::string::npos;
  const Outcome outcome =
      workspace.run({"train", fs::absolute("examples/" + GetParam()).string(), "--model=model",
                     "--dataset=" + fs::absolute("examples/chats.jsonl").string(), "--cutoff_len=96",
                     mixed ? "--devices=emulated:rtx4090,rtx3060*2" : "--devices=cpu", "--max_steps=1",
                     "--gradient_accumulation_steps=4"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const bool full = GetParam().starts_with("full");
  EXPECT_TRUE(fs::exists(workspace.path("out") / (full ? "model.safetensors" : "adapter_model.safetensors")));
}

INSTANTIATE_TEST_SUITE_P(All, Example, testing::ValuesIn(examples()), [](const auto& one) {
  std::string name = one.param.substr(0, one.param.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace rondo::cli
