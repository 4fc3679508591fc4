// What follows from the table of keys for other programs: the manual page and the completions. Nothing here names a
// verb or a key that the table does not.
#include "rondo/train/manual.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>

#include "config_keys.h"
#include "config_test_util.h"
#include "shell.h"

namespace rondo::train {
namespace {

using test::shell;
using test::Shown;
using testing::HasSubstr;

bool there_is(const char* program) { return shell(std::string("command -v ") + program).status == 0; }

std::string in_roff(std::string text) {
  for (std::size_t at = 0; (at = text.find('-', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

/// What bash offers after `words`, the last of which is being typed.
std::vector<std::string> offered(const std::string& script, const std::vector<std::string>& words) {
  std::string command = "bash -c '. \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _rondo; " +
                        std::string("printf \"%s\\n\" \"${COMPREPLY[@]}\"' ") + script;
  for (const std::string& word : words) command += " '" + word + "'";
  std::istringstream lines(shell(command).output);
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (!line.empty()) result.push_back(line);
  }
  return result;
}

TEST(Manual, EveryVerbAndKey_IsThereWithItsDefaultAndAnExample) {
  const std::string page = manual_page("1.2.3");
  EXPECT_THAT(page, HasSubstr(".TH RONDO 1"));
  for (const std::string& verb : verbs()) {
    const std::size_t begin = page.find(".SS \"rondo " + verb + "\"");
    ASSERT_NE(begin, std::string::npos) << verb;
    const std::string section = page.substr(begin, page.find("\n.S", begin + 1) - begin);
    EXPECT_THAT(section, HasSubstr("Example:")) << verb;
    for (const config::Key& key : config::keys()) {
      if ((key.verbs & config::verb_bit(verb)) == 0 || key.verbs == config::kEvery) continue;
      EXPECT_THAT(section, HasSubstr("\\fB\\-\\-" + in_roff(key.name) + "\\fR")) << verb;
    }
  }
  EXPECT_THAT(page, HasSubstr("[" + in_roff("5e-05") + "]"));
}

TEST(Manual, Typesetter_HasNoComplaint) {
  if (!there_is("groff")) GTEST_SKIP() << "no groff on this machine";
  const YamlFile page(manual_page("1.2.3"));
  const Shown shown = shell("groff -man -ww -Tutf8 -z " + page.path());
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(shown.output, "");
}

TEST(Completion, EveryShell_KnowsEveryVerbAndKey) {
  for (const char* name : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(name);
    const std::string dashes = name == std::string("fish") ? "-l " : "--";
    for (const std::string& verb : verbs()) EXPECT_THAT(script, HasSubstr(verb)) << name;
    for (const config::Key& key : config::keys()) EXPECT_THAT(script, HasSubstr(dashes + key.name)) << name;
  }
  EXPECT_EQ(completion_script("csh"), "");
}

TEST(Completion, Scripts_AreWhatTheirShellsParse) {
  for (const char* name : {"bash", "zsh", "fish"}) {
    if (!there_is(name)) continue;
    const YamlFile script(completion_script(name));
    const Shown shown = shell(std::string(name) + " -n " + script.path());
    EXPECT_EQ(shown.status, 0) << name;
    EXPECT_EQ(shown.output, "") << name;
  }
}

TEST(Completion, InBash_OffersVerbsKeysAndValues) {
  if (!there_is("bash")) GTEST_SKIP() << "no bash on this machine";
  const YamlFile file(completion_script("bash"));
  const std::string script = file.path();
  EXPECT_THAT(offered(script, {"rondo", "tra"}), testing::ElementsAre("train"));
  EXPECT_THAT(offered(script, {"rondo", ""}), testing::IsSupersetOf(verbs()));
  EXPECT_THAT(offered(script, {"rondo", "help", "tra"}), testing::ElementsAre("train"));
  EXPECT_THAT(offered(script, {"rondo", "completion", ""}), testing::ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(offered(script, {"rondo", "train", "--dtype", "b"}), testing::ElementsAre("bf16"));
  EXPECT_THAT(offered(script, {"rondo", "train", "--dtype", "=", "b"}), testing::ElementsAre("bf16"));
  EXPECT_THAT(offered(script, {"rondo", "train", "--learning-r"}), testing::ElementsAre("--learning_rate"));
  for (const std::string& verb : verbs()) {
    std::vector<std::string> keys = {"--help"};
    for (const config::Key& key : config::keys()) {
      if ((key.verbs & config::verb_bit(verb)) != 0) keys.push_back("--" + key.name);
    }
    EXPECT_THAT(offered(script, {"rondo", verb, "-"}), testing::UnorderedElementsAreArray(keys)) << verb;
  }
}

}  // namespace
}  // namespace rondo::train
