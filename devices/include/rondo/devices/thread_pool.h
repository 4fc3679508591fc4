// The host's one pool of compute threads. CPU kernels and the host optimizer run on it.
//
// Work is cut into tasks whose borders follow from sizes alone; which thread takes a task never enters a result.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace rondo::devices {

/// As many threads as this process may run at once, at least 1.
std::uint32_t usable_threads();

class ThreadPool {
 public:
  /// `threads` >= 1 members in all, the caller of parallel_for among them. 0: as many as the process may use. There are
  /// fewer where the process may not have so many threads.
  explicit ThreadPool(std::uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::uint32_t threads() const;

  using Task = void (*)(void* context, std::int64_t task, std::uint32_t member);
  /// Calls fn(task, member) once for every task in 0 ... tasks - 1 and returns when all are done. member < threads()
  /// names the executing member, so that it can index scratch. One parallel_for runs at a time: concurrent callers take
  /// turns. Does not allocate. REQUIRES: not called from within a task.
  template <typename Function>
  void parallel_for(std::int64_t tasks, Function&& fn) {
    using Plain = std::remove_reference_t<Function>;
    run(
        tasks,
        [](void* context, std::int64_t task, std::uint32_t member) { (*static_cast<Plain*>(context))(task, member); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  void run(std::int64_t tasks, Task task, void* context);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rondo::devices
