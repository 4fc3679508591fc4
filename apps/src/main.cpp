// The `rondo` program: signals and what must not escape.
//
// The first SIGINT or SIGTERM asks a training run to save and end, the second ends the process at once; other verbs,
// and a run before its first step, have nothing to save and end at the first. SIGHUP, when the terminal is gone, asks
// likewise, however often it comes; where it was ignored when the program began (nohup) it stays so.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/apps/command.h"
#include "rondo/base/unfinished.h"

namespace {

rondo::train::StopRequest stop;
static_assert(rondo::train::StopFlag::is_always_lock_free, "the handler may only touch what needs no lock");

void tell_that_it_saves() {
  constexpr std::string_view kNote = "\ninterrupted: saving; once more ends at once\n";
  if (::write(STDERR_FILENO, kNote.data(), kNote.size()) < 0) return;  // nowhere to tell it
}

/// At once, but for what would be left half written.
[[noreturn]] void end_at_once() {
  rondo::remove_unfinished();
  ::_exit(rondo::apps::kInterrupted);
}

extern "C" void on_signal(int) {
  // Release: what the handler saw happens before what the run does about it; nothing else is shared.
  const bool heeded = stop.heeded.load(std::memory_order_acquire);
  if (!heeded || stop.asked.exchange(true, std::memory_order_acq_rel)) end_at_once();
  tell_that_it_saves();
}

/// Of one terminal that closes a job hears twice, by the kernel and by its shell: no second one ends it at once.
extern "C" void on_hangup(int) {
  if (!stop.heeded.load(std::memory_order_acquire)) end_at_once();
  if (!stop.asked.exchange(true, std::memory_order_acq_rel)) tell_that_it_saves();
}

void install_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  action.sa_handler = on_hangup;
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);  // a closed pipe shows as a failed write
  sigaction(SIGXFSZ, &ignore, nullptr);  // so does a file that may not grow further (ulimit -f)
}

/// A standard stream that is closed (`2>&-`) leaves its number to the next file that is opened, into which would go
/// what is meant for the stream. /dev/null takes the place, opened the other way round: using it fails as before.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

/// Large blocks come from the kernel and go back to it when they are freed. Left alone, glibc takes them from its heap
/// as soon as one was freed, and keeps megabytes of it. What oneDNN writes its code into counts as large: it is freed
/// at once, and what is in use between such gaps keeps them.
void keep_heap_small() {
  constexpr int kLarge = 64 * 1024;  // bytes
  ::mallopt(M_MMAP_THRESHOLD, kLarge);
  ::mallopt(M_TRIM_THRESHOLD, kLarge);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  keep_heap_small();
  try {
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    install_handlers();
    return rondo::apps::run_command(arguments, {}, stop);
  } catch (const std::bad_alloc&) {
    rondo::apps::print_error(stderr, "main memory: exhausted; take a smaller cutoff_len or model");
  } catch (const std::exception& error) {
    rondo::apps::print_error(stderr, error.what());
  } catch (...) {
    rondo::apps::print_error(stderr, "unknown exception");
  }
  return rondo::apps::kWorkFailed;
}
