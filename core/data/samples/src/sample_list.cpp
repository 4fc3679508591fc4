// Memory grows in chunks that never move, so that a large set is not copied as it grows. A file is read past its
// mapping, so that resident memory does not grow with what has been read: beside a sample the kernel maps what lies
// around it.
#include "rondo/data/sample_list.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace rondo::data {
namespace {

constexpr std::size_t kChunk = 1U << 18U;  // codes

}  // namespace

struct SampleList::Keeper {
  Keeper() = default;
  explicit Keeper(MappedFile mapped) : file(std::move(mapped)) {
    descriptor = ::open(file->path().c_str(), O_RDONLY | O_CLOEXEC);  // negative: it is gone, the mapping is not
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() {
    if (descriptor >= 0) ::close(descriptor);
  }

  /// False when only the mapping has them.
  bool read(const TokenId* codes, std::span<TokenId> to) const {
    const std::span<std::byte> bytes = std::as_writable_bytes(to);
    const std::ptrdiff_t offset = reinterpret_cast<const std::byte*>(codes) - file->bytes().data();
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::pread(descriptor, bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }

  std::vector<TokenId> chunk;
  std::optional<MappedFile> file;
  int descriptor = -1;
};

std::uint32_t count_targets(const Sample& sample) {
  std::uint32_t targets = 0;
  for (std::size_t t = 1; t < sample.labels.size(); ++t) targets += sample.labels[t] != kMasked ? 1U : 0U;
  return targets;
}

Sample SampleList::operator[](std::size_t i) const {
  const Entry& entry = entries_[i];
  Sample sample;
  sample.index = entry.index;
  sample.source = entry.source;
  sample.ids.resize(entry.length);
  sample.labels.resize(entry.length);
  const Keeper& keeper = *keepers_[entry.keeper];
  if (!keeper.file || !keeper.read(entry.codes, sample.ids)) {
    const std::span codes(entry.codes, entry.length);
    std::ranges::copy(codes, sample.ids.begin());
    if (keeper.file) keeper.file->release_pages(std::as_bytes(codes));
  }
  for (std::size_t t = 0; t < sample.ids.size(); ++t) {
    TokenId& id = sample.ids[t];
    sample.labels[t] = id < 0 ? kMasked : id;
    id = id < 0 ? ~id : id;
  }
  return sample;
}

void SampleList::push_back(const Sample& sample) { push_back(sample, count_targets(sample)); }

void SampleList::push_back(const Sample& sample, std::uint32_t targets) {
  const std::size_t length = sample.ids.size();
  // A chunk that a copy of the list shares is its past: nobody adds to it any more.
  const bool fits = !keepers_.empty() && keepers_.back().use_count() == 1 && !keepers_.back()->file &&
                    keepers_.back()->chunk.capacity() - keepers_.back()->chunk.size() >= length;
  if (!fits) {
    keepers_.push_back(std::make_shared<Keeper>());
    keepers_.back()->chunk.reserve(std::max(kChunk, length));
  }
  std::vector<TokenId>& chunk = keepers_.back()->chunk;
  Entry entry;
  entry.codes = chunk.data() + chunk.size();
  entry.index = sample.index;
  entry.length = static_cast<std::uint32_t>(length);
  entry.targets = targets;
  entry.source = sample.source;
  entry.keeper = static_cast<std::uint32_t>(keepers_.size() - 1);
  for (std::size_t t = 0; t < length; ++t) chunk.push_back(code_of(sample.ids[t], sample.labels[t]));
  entries_.push_back(entry);
}

void SampleList::append(const SampleList& other, std::uint32_t source) {
  const auto first = static_cast<std::uint32_t>(keepers_.size());
  keepers_.insert(keepers_.end(), other.keepers_.begin(), other.keepers_.end());
  entries_.reserve(entries_.size() + other.size());
  for (Entry entry : other.entries_) {
    entry.keeper += first;
    entry.source = source;
    entries_.push_back(entry);
  }
}

SampleList SampleList::select(std::span<const std::uint32_t> numbers) const {
  SampleList selected;
  selected.keepers_ = keepers_;
  selected.entries_.reserve(numbers.size());
  for (const std::uint32_t number : numbers) selected.entries_.push_back(entries_[number]);
  return selected;
}

SampleList SampleList::of_file(MappedFile file, std::span<const Place> places) {
  SampleList list;
  list.keepers_.push_back(std::make_shared<Keeper>(std::move(file)));
  const auto* codes = reinterpret_cast<const TokenId*>(list.keepers_[0]->file->bytes().data());
  list.entries_.reserve(places.size());
  for (const Place& place : places) {
    list.entries_.push_back({codes + place.first, place.index, place.length, place.targets, 0, 0});
  }
  return list;
}

}  // namespace rondo::data
