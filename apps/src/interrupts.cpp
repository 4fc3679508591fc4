// The handler of SIGINT while an Interrupts lives. What a handler touches must be global.
#include "rondo/apps/interrupts.h"

#include <unistd.h>

#include "rondo/apps/command.h"

namespace rondo::apps {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the handler may only touch what needs no lock");

extern "C" void note_interrupt(int) {
  if (interrupted.exchange(true, std::memory_order_relaxed)) ::_exit(kInterrupted);
}

}  // namespace

Interrupts::Interrupts() {
  clear();
  struct sigaction action = {};
  action.sa_handler = note_interrupt;
  sigemptyset(&action.sa_mask);  // no SA_RESTART: a read that waits for a line ends
  ::sigaction(SIGINT, &action, &before_);
}

Interrupts::~Interrupts() { ::sigaction(SIGINT, &before_, nullptr); }

const std::atomic<bool>& Interrupts::flag() { return interrupted; }

void Interrupts::clear() { interrupted.store(false, std::memory_order_relaxed); }

}  // namespace rondo::apps
