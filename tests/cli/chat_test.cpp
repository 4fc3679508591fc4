// `rondo chat` through a pipe and at a terminal.
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "workspace.h"

namespace rondo::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

Words chat(const Words& more = {}) {
  Words words = {"chat", "--model=model", "--devices=cpu", "--dtype=fp32", "--max_new_tokens=6"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome piped(const Workspace& workspace, const Words& arguments, const std::string& lines) {
  workspace.write("turns.txt", lines);
  Process process(arguments, workspace.path().string(), workspace.path("turns.txt").string());
  return process.wait();
}

TEST(ChatPipe, FirstTurn_IsWhatGenerateSays) {
  const Workspace workspace;
  const Outcome said = piped(workspace, chat(), "Name a colour.\n");
  EXPECT_EQ(said.status, 0) << said.err;
  const Outcome generated = workspace.run(
      {"generate", "--model=model", "--devices=cpu", "--dtype=fp32", "--max_new_tokens=6", "--prompt=Name a colour."});
  EXPECT_EQ(said.out, generated.out);
  EXPECT_EQ(said.err, "");
}

TEST(ChatPipe, GgufFile_IsTalkedToAsItsDirectory) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run({"export", "--model=model", "--output=m.gguf", "--quantization=f32"}).status, 0);
  const Outcome folder = piped(workspace, chat({"--json"}), "Name a colour.\nAnd a fruit?\n");
  const Outcome file = piped(workspace, chat({"--json", "--model=m.gguf"}), "Name a colour.\nAnd a fruit?\n");
  EXPECT_EQ(file.status, 0) << file.err;
  EXPECT_EQ(file.out, folder.out);
}

TEST(ChatPipe, LaterTurns_HoldTheEarlierOnesAndReuseThem) {
  const Workspace workspace;
  const Json json = json_of(piped(workspace, chat({"--json"}), "Name a colour.\n\nAnd a fruit?\nA tree?"));
  const Json& messages = json["messages"];
  ASSERT_EQ(messages.size(), 6U);
  EXPECT_EQ(messages[0]["role"], "user");
  EXPECT_EQ(messages[1]["role"], "assistant");
  EXPECT_EQ(messages[4]["content"], "A tree?");
  const Json& answers = json["answers"];
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0]["reused_tokens"], 0);
  for (std::size_t i = 1; i < 3; ++i) {
    const auto before = answers[i - 1]["prompt_ids"].get<std::vector<int>>();
    const auto ids = answers[i]["prompt_ids"].get<std::vector<int>>();
    ASSERT_GT(ids.size(), before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end() - 1, ids.begin()));
    EXPECT_GE(answers[i]["reused_tokens"].get<std::size_t>(), before.size() - 1);
    EXPECT_LT(answers[i]["reused_tokens"].get<std::size_t>(), ids.size());
  }
}

TEST(ChatPipe, Commands_ResetSystemSaveAndExit) {
  const Workspace workspace;
  const Json json = json_of(piped(workspace, chat({"--json"}),
                                  "/system Be brief.\nName a colour.\n/save first.json\n/reset\n//slash\n"
                                  "one \\\ntwo\n/save second.json\n/exit\nnever said\n"));
  const Json first = Json::parse(workspace.read("first.json"), nullptr, false);
  ASSERT_EQ(first["messages"].size(), 3U);
  EXPECT_EQ(first["messages"][0]["role"], "system");
  EXPECT_EQ(first["messages"][0]["content"], "Be brief.");
  const Json& messages = json["messages"];
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[0]["content"], "Be brief.");
  EXPECT_EQ(messages[1]["content"], "/slash");
  EXPECT_EQ(messages[3]["content"], "one \ntwo");
  EXPECT_EQ(Json::parse(workspace.read("second.json"), nullptr, false)["messages"], messages);
  // After /reset the same turn gets the same answer as at first.
  const Json again = json_of(piped(workspace, chat({"--json"}), "Name a colour.\n/reset\nName a colour.\n"));
  EXPECT_EQ(again["answers"][0]["token_ids"], again["answers"][1]["token_ids"]);
}

TEST(ChatPipe, SavedConversation_IsADataSet) {
  const Workspace workspace;
  ASSERT_EQ(piped(workspace, chat(), "Name a colour.\n/save talk.jsonl\n").status, 0);
  const Json shown = json_of(workspace.run({"data", "--model=model", "--dataset=talk.jsonl", "--json"}));
  EXPECT_EQ(shown["samples"].size(), 1U);
}

TEST(ChatPipe, FullContext_ForgetsTheOldestTurns) {
  const Workspace workspace;
  const Outcome outcome = piped(workspace, chat({"--json", "--context_len=96"}),
                                "/system Short.\nName a colour.\nName a fruit.\nName a tree.\nName a river.\n");
  const Json json = json_of(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("forgotten"));
  EXPECT_EQ(json["messages"][0]["role"], "system");
  EXPECT_LT(json["messages"].size(), 9U);
  for (const Json& answer : json["answers"]) EXPECT_LE(answer["prompt_ids"].size() + answer["token_ids"].size(), 96U);
}

TEST(ChatPipe, BadTurns_EndItInOneLine) {
  const Workspace workspace;
  workspace.write("taken.json", "{}");
  const std::pair<const char*, const char*> cases[] = {{"hello\n/sing\n", "line 2: /sing"},
                                                       {"/save\n", "line 1: /save"},
                                                       {"/save taken.json\n", "taken.json exists"},
                                                       {"/reset now\n", "line 1: /reset"},
                                                       {"/save no/such/folder/file\n", "no/such/folder"}};
  for (const auto& [lines, named] : cases) {
    const Outcome outcome = piped(workspace, chat(), lines);
    EXPECT_NE(outcome.status, 0) << lines;
    EXPECT_THAT(outcome.err, HasSubstr(named));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  const Outcome crowded = piped(workspace, chat({"--context_len=8"}), "Name a colour and a fruit and a tree.\n");
  EXPECT_EQ(crowded.status, 2);
  EXPECT_THAT(crowded.err, HasSubstr("context_len"));
  EXPECT_EQ(workspace.read("taken.json"), "{}");
}

TEST(ChatPipe, Compare_AnswersWithoutAndWithTheAdapter) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train({"--max_steps=30", "--lr=2e-2", "--batch_size=3"})).status, 0);
  const std::string turns = "Name a colour.\nName a fruit.\n";
  const Json both = json_of(piped(workspace, chat({"--adapter_name_or_path=out", "--compare", "--json"}), turns));
  const Json base = json_of(piped(workspace, chat({"--json"}), turns));
  const Json adapted = json_of(piped(workspace, chat({"--adapter_name_or_path=out", "--json"}), turns));
  EXPECT_EQ(both["base_answers"], base["answers"]);
  EXPECT_EQ(both["answers"], adapted["answers"]);
  EXPECT_NE(base["messages"], adapted["messages"]);
  const Outcome text = piped(workspace, chat({"--adapter_name_or_path=out", "--compare"}), "Name a colour.\n");
  EXPECT_THAT(text.out, testing::StartsWith("base: "));
  EXPECT_THAT(text.out, HasSubstr("\nadapter: "));
}

/// The program at a terminal of its own.
class Terminal {
 public:
  Terminal(const Words& arguments, const std::string& folder, unsigned short columns) {
    winsize size = {40, columns, 0, 0};
    Words words = {RONDO_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      if (::chdir(folder.c_str()) == 0) ::execv(RONDO_PROGRAM, argv.data());
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(terminal_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const {
    EXPECT_EQ(::write(terminal_, keys.data(), keys.size()), std::ssize(keys));
  }

  /// Waits until `text` has been shown since the last call; what was shown until then is taken off.
  bool shows(const std::string& text) {
    return sees(
        [&](const std::string& seen) {
          const std::size_t at = seen.find(text);
          return at == std::string::npos ? 0 : at + text.size();
        },
        text);
  }

  /// Waits until a letter or another visible character of ASCII has been shown since the last call.
  bool shows_letter() {
    return sees(
        [](const std::string& seen) {
          const auto visible = [](char c) { return c > ' ' && c <= '~'; };
          return std::any_of(seen.begin(), seen.end(), visible) ? seen.size() : 0;
        },
        "a letter");
  }

  /// Waits for the prompt and the line editor behind it. The editor takes the terminal over a moment after it has
  /// shown the prompt; keys typed in between would be echoed twice.
  bool prompts() {
    if (!shows("> ")) return false;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    termios modes = {};
    while (std::chrono::steady_clock::now() < deadline) {
      if (::tcgetattr(terminal_, &modes) == 0 && (modes.c_lflag & ICANON) == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no line editor";
    return false;
  }

  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  /// `find`: how much of what was seen is found, 0 as long as it is not there; that much is taken off.
  bool sees(const std::function<std::size_t(const std::string&)>& find, const std::string& name) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      if (const std::size_t found = find(seen_); found > 0) {
        seen_.erase(0, found);
        return true;
      }
      pollfd ready = {terminal_, POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(terminal_, buffer, sizeof buffer);
      if (got <= 0) break;
      seen_.append(buffer, static_cast<std::size_t>(got));
      all_.append(buffer, static_cast<std::size_t>(got));
    }
    ADD_FAILURE() << "not shown: " << name << "\nbut: " << testing::PrintToString(all_);
    return false;
  }

  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string seen_;  // and not yet taken off
  std::string all_;
};

TEST(ChatTerminal, CtrlC_StopsTheAnswerAndNotTheProgram) {
  const Workspace workspace;
  // An answer of seconds unless it is stopped, whose first token is text.
  const Outcome made = workspace.run({"init", "--arch=llama", "--output_dir=large", "--hidden_size=512",
                                      "--num_hidden_layers=4", "--dtype=fp32", "--seed=7"});
  ASSERT_EQ(made.status, 0) << made.err;
  Terminal terminal({"chat", "--model=large", "--devices=cpu", "--dtype=fp32", "--max_new_tokens=1900"},
                    workspace.path().string(), 80);
  ASSERT_TRUE(terminal.prompts());
  terminal.type("Name a colour.\r");
  ASSERT_TRUE(terminal.shows("Name a colour."));
  ASSERT_TRUE(terminal.shows("\n"));
  ASSERT_TRUE(terminal.shows_letter());
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("note: stopped"));
  ASSERT_TRUE(terminal.prompts());
  // At the prompt it gives up the line.
  terminal.type("half a line\x03");
  ASSERT_TRUE(terminal.shows("Ctrl-D ends"));
  ASSERT_TRUE(terminal.prompts());
  terminal.type("/nonsense\r");
  ASSERT_TRUE(terminal.shows("unknown command"));
  ASSERT_TRUE(terminal.prompts());
  terminal.type("/save talk.json\r");
  ASSERT_TRUE(terminal.shows("saved in talk.json"));
  ASSERT_TRUE(terminal.prompts());
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
  const Json saved = Json::parse(workspace.read("talk.json"), nullptr, false);
  EXPECT_EQ(saved["messages"].size(), 2U);
}

TEST(ChatTerminal, WideScreen_ShowsTwoColumns) {
  const Workspace workspace;
  ASSERT_EQ(workspace.run(train()).status, 0);
  Terminal terminal(chat({"--adapter_name_or_path=out", "--compare"}), workspace.path().string(), 120);
  ASSERT_TRUE(terminal.prompts());
  terminal.type("Name a colour.\r");
  EXPECT_TRUE(terminal.shows("| adapter"));
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.wait(), 0);
}

}  // namespace
}  // namespace rondo::cli
