// Applying merges to the symbols of one word: always the merge of the lowest rank, the leftmost among equals.
#include <algorithm>
#include <queue>
#include <vector>

#include "bpe.h"

namespace rondo::data::tok {
namespace {

struct Candidate {
  std::uint32_t rank = 0;
  std::int32_t at = 0;
  TokenId id = 0;
};

struct LaterFirst {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }
};

using Queue = std::priority_queue<Candidate, std::vector<Candidate>, LaterFirst>;

void absorb(WordToken& left, const WordToken& right, TokenId id) {
  left.id = id;
  left.begin = std::min(left.begin, right.begin);
  left.end = std::max(left.end, right.end);
}

}  // namespace

void Bpe::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& merges = scratch.merges;
  if (symbols.size() < 2) return;
  merges.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) merges.push_back(merges_.find(symbols[i].id, symbols[i + 1].id));
  while (!merges.empty()) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == Merge::kNone) return;
    absorb(symbols[best], symbols[best + 1], merges[best].id);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1].id, symbols[best].id);
    if (best < merges.size()) merges[best] = merges_.find(symbols[best].id, symbols[best + 1].id);
  }
}

void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& next = scratch.links;  // next[i], or -1 at the end; previous[i] behind it; -2 marks a symbol merged away
  const std::size_t count = symbols.size();
  next.resize(2 * count);
  const auto previous = [&](std::size_t i) -> std::int32_t& { return next[count + i]; };
  std::vector<Candidate> first;
  first.reserve(count);
  const auto candidate = [&](std::size_t left, std::size_t right) {
    const Merge merge = merges_.find(symbols[left].id, symbols[right].id);
    return Candidate{merge.rank, static_cast<std::int32_t>(left), merge.id};
  };
  for (std::size_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? static_cast<std::int32_t>(i + 1) : -1;
    previous(i) = static_cast<std::int32_t>(i) - 1;
    if (i + 1 == count) break;
    const Candidate found = candidate(i, i + 1);
    if (found.rank != Merge::kNone) first.push_back(found);
  }
  Queue queue(LaterFirst{}, std::move(first));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const auto left = static_cast<std::size_t>(top.at);
    if (next[left] < 0) continue;
    const auto right = static_cast<std::size_t>(next[left]);
    // The entry is stale when the two symbols no longer merge into what it says.
    const Merge now = merges_.find(symbols[left].id, symbols[right].id);
    if (now.rank == Merge::kNone || now.id != top.id) continue;
    absorb(symbols[left], symbols[right], top.id);
    next[left] = next[right];
    next[right] = -2;
    if (next[left] >= 0) {
      previous(static_cast<std::size_t>(next[left])) = top.at;
      const Candidate found = candidate(left, static_cast<std::size_t>(next[left]));
      if (found.rank != Merge::kNone) queue.push(found);
    }
    if (previous(left) >= 0) {
      const Candidate found = candidate(static_cast<std::size_t>(previous(left)), left);
      if (found.rank != Merge::kNone) queue.push(found);
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (next[i] != -2) symbols[kept++] = symbols[i];
  }
  symbols.resize(kept);
}

}  // namespace rondo::data::tok
