// Starting the program and collecting what it says.
#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "patience.h"

extern char** environ;

namespace rondo::cli {
namespace {

/// Of one program: less than ctest gives a test.
std::chrono::steady_clock::time_point end_of_patience() {
  return std::chrono::steady_clock::now() + test::kSlowdown * std::chrono::seconds(250);
}

}  // namespace

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Process::Process(const std::vector<std::string>& arguments, const std::string& folder, const std::string& input) {
  // Speeds are remembered for the tests alone, and measured once for all of them.
  ::setenv("XDG_CACHE_HOME", (std::filesystem::temp_directory_path() / "rondo_cli_cache").c_str(), /*overwrite=*/0);
  // Runs of tests are not in the user's list.
  ::setenv("RONDO_RUNS_DB", "none", /*overwrite=*/0);
  static std::atomic<int> count = 0;
  const std::string base = testing::TempDir() + "/rondo_output_" + std::to_string(::getpid()) + "_" +
                           std::to_string(count.fetch_add(1, std::memory_order_relaxed));
  out_path_ = base + ".out";
  err_path_ = base + ".err";
  std::vector<std::string> words = {RONDO_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  const int error = ::posix_spawn(&pid_, RONDO_PROGRAM, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    ADD_FAILURE() << RONDO_PROGRAM << " cannot be started: error " << error;
  }
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::unlink(out_path_.c_str());
  ::unlink(err_path_.c_str());
}

void Process::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

std::string Process::err() const { return slurp(err_path_); }

bool Process::has_ended() const {
  siginfo_t ended{};
  const int error = pid_ <= 0 ? -1 : ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
  return error != 0 || ended.si_pid == pid_;
}

bool Process::says(const std::string& text) const {
  const auto deadline = end_of_patience();
  while (true) {
    const bool last = has_ended() || std::chrono::steady_clock::now() > deadline;
    if (err().find(text) != std::string::npos) return true;
    if (last) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "it does not say '" << text << "' but: " << err();
  return false;
}

Outcome Process::wait() {
  Outcome outcome;
  if (pid_ <= 0) return outcome;
  int status = 0;
  const auto deadline = end_of_patience();
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program does not end";
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  pid_ = -1;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = slurp(out_path_);
  outcome.err = slurp(err_path_);
  return outcome;
}

Outcome run(const std::vector<std::string>& arguments, const std::string& folder) {
  return Process(arguments, folder).wait();
}

}  // namespace rondo::cli
