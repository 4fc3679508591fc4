// Fair sharing of a link, simulated lazily: every call first lets pass the time up to its own moment.
//
// A transfer that begins can only delay the others, so a sleeper never has to be woken early: at its predicted end it
// looks again, and sleeps on if it was delayed.
#include "shared_link.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>

namespace rondo::devices::emulated {
namespace {

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e9)));
}

double seconds_between(Moment from, Moment to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

void sleep_to(Moment moment) {
  // The kernel may round a sleep up by 50 us to save wake-ups; a card's clock is finer.
  thread_local const bool slack_set = ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL) == 0;
  static_cast<void>(slack_set);
  // steady_clock is CLOCK_MONOTONIC here.
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(moment.time_since_epoch()).count();
  timespec until{};
  until.tv_sec = static_cast<std::time_t>(since / 1'000'000'000);
  until.tv_nsec = static_cast<long>(since % 1'000'000'000);
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void SharedLink::attach(double bytes_per_second) {
  const MutexLock lock(mutex_);
  bandwidth_ = std::max(bandwidth_, bytes_per_second);
}

void SharedLink::share_out(Transfers& transfers, double bandwidth) {
  // Those whose own link is slower than their part leave the rest to the others: repeat until none is.
  double left = bandwidth;
  std::size_t open = 0;
  for (Transfer& transfer : transfers) {
    transfer.rate = 0;
    if (transfer.active && !transfer.done) ++open;
  }
  while (open > 0) {
    const double part = left / static_cast<double>(open);
    bool settled = false;
    for (Transfer& transfer : transfers) {
      if (!transfer.active || transfer.done || transfer.rate > 0 || transfer.own_rate > part) continue;
      transfer.rate = transfer.own_rate;
      left -= transfer.own_rate;
      --open;
      settled = true;
    }
    if (settled) continue;
    for (Transfer& transfer : transfers) {
      if (transfer.active && !transfer.done && transfer.rate <= 0) transfer.rate = part;
    }
    return;
  }
}

void SharedLink::advance(Transfers& transfers, double bandwidth, Moment from, Moment to) {
  while (from < to) {
    share_out(transfers, bandwidth);
    double first = -1;  // seconds until the next end
    for (const Transfer& transfer : transfers) {
      if (transfer.rate <= 0) continue;
      const double seconds = transfer.remaining / transfer.rate;
      if (first < 0 || seconds < first) first = seconds;
    }
    if (first < 0) return;  // idle
    const Moment next = std::min(to, from + nanoseconds_of(first));
    const double passed = seconds_between(from, next);
    for (Transfer& transfer : transfers) {
      if (transfer.rate <= 0) continue;
      transfer.remaining -= passed * transfer.rate;
      if (transfer.remaining > 1e-3) continue;
      transfer.done = true;
      transfer.end = next;
    }
    from = next;
  }
}

void SharedLink::advance_to(Moment moment) {
  if (moment <= now_) return;
  advance(transfers_, bandwidth_, now_, moment);
  now_ = moment;
}

Moment SharedLink::predicted_end(const Transfer& transfer) {
  Transfers future = transfers_;
  const auto index = static_cast<std::size_t>(&transfer - transfers_.data());
  Moment from = now_;
  while (!future[index].done) {
    const Moment to = from + std::chrono::seconds(3600);
    advance(future, bandwidth_, from, to);
    from = to;
  }
  return future[index].end;
}

SharedLink::Transfer* SharedLink::enter() {
  for (;;) {
    for (Transfer& transfer : transfers_) {
      if (!transfer.active) return &transfer;
    }
    left_.wait(mutex_);
  }
}

Moment SharedLink::transfer(double bytes, double own_rate, Moment ready) {
  Transfer* self = nullptr;
  Moment end;
  {
    const MutexLock lock(mutex_);
    self = enter();
    advance_to(ready);
    *self = {true, bytes <= 0, bytes, own_rate, 0, std::max(ready, now_)};
    end = self->done ? self->end : predicted_end(*self);
  }
  for (;;) {
    sleep_to(end);
    const MutexLock lock(mutex_);
    advance_to(end);
    if (self->done) {
      end = self->end;
      self->active = false;
      left_.notify_one();
      return end;
    }
    end = predicted_end(*self);
  }
}

}  // namespace rondo::devices::emulated
