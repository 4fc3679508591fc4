// The handler of SIGINT while an Interrupts lives. What a handler touches must be global.
#include "rondo/apps/interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rondo/apps/command.h"

namespace rondo::apps {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the handler may only touch what needs no lock");

/// A pipe that holds a byte while an interrupt is pending, since a signal may come to any thread and then interrupts
/// the system call of that one alone. Negative before the first Interrupts and where no pipe could be made.
std::array<int, 2> wake = {-1, -1};

extern "C" void note_interrupt(int) {
  if (interrupted.exchange(true, std::memory_order_relaxed)) ::_exit(kInterrupted);
  const int reason = errno;
  if (wake[1] >= 0) (void)!::write(wake[1], "", 1);
  errno = reason;
}

void drain_wake() {
  std::array<char, 16> bytes;
  while (wake[0] >= 0 && ::read(wake[0], bytes.data(), bytes.size()) > 0) {
  }
}

}  // namespace

Interrupts::Interrupts() {
  if (wake[0] < 0 && ::pipe2(wake.data(), O_CLOEXEC | O_NONBLOCK) != 0) wake = {-1, -1};
  clear();
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);  // no SA_RESTART: a read that waits for a line ends
  ::sigaction(SIGINT, &action, &before_);
}

Interrupts::~Interrupts() { ::sigaction(SIGINT, &before_, nullptr); }

const std::atomic<bool>& Interrupts::flag() { return interrupted; }

void Interrupts::clear() {
  drain_wake();
  interrupted.store(false, std::memory_order_relaxed);
}

Interrupts::Wait Interrupts::wait_to_read(int descriptor) {
  while (true) {
    if (interrupted.load(std::memory_order_relaxed)) return Wait::kInterrupted;
    std::array<pollfd, 2> ready = {pollfd{descriptor, POLLIN, 0}, pollfd{wake[0], POLLIN, 0}};
    const int count = ::poll(ready.data(), ready.size(), -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || ready[0].revents != 0) return Wait::kReadable;  // what went wrong, read() says
    drain_wake();  // of a signal whose flag has just been cleared, or will be seen now
  }
}

}  // namespace rondo::apps
