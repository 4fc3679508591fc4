#include "processor_waits.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

namespace rondo::schedule {

double ProcessorWaits::since_last() {
  std::map<std::string, std::uint64_t> now;
  std::uint64_t longest = 0;
  std::error_code failed;  // threads end while they are counted
  for (std::filesystem::directory_iterator thread(threads_, failed), end; !failed && thread != end;
       thread.increment(failed)) {
    std::ifstream file(thread->path() / "schedstat");
    std::uint64_t ran = 0;
    std::uint64_t waited = 0;
    if (!(file >> ran >> waited)) continue;
    const std::string name = thread->path().filename().string();
    const auto before = waited_.find(name);
    if (before != waited_.end()) longest = std::max(longest, waited - std::min(waited, before->second));
    now.emplace(name, waited);
  }
  waited_ = std::move(now);
  return static_cast<double>(longest) * 1e-9;
}

}  // namespace rondo::schedule
