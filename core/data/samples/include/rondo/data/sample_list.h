// Tokenized samples of any number: in memory, or in a file that is read as they are asked for.
//
// Copies share the tokens. A list is filled by one thread; afterwards it may be read from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/data/tokenizer.h"

namespace rondo::data {

/// As HF's labels: a masked token is no target.
inline constexpr std::int32_t kMasked = -100;

/// One training sample, cut to cutoff_len.
struct Sample {
  std::vector<TokenId> ids;          // [T]
  std::vector<std::int32_t> labels;  // [T], labels[t] == ids[t] where t is a target, else kMasked (not shifted)
  std::uint64_t index = 0;           // record number in the data set, from 0
  std::uint32_t source = 0;          // which of the run's data sets; with `index` the key of its random numbers
};

/// Labels that count in the loss: they are shifted by one, so position 0 can be no target.
std::uint32_t count_targets(const Sample& sample);

class SampleList {
 public:
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  /// A copy; of a list in a file it is read from there.
  Sample operator[](std::size_t i) const;
  Sample front() const { return (*this)[0]; }
  // What needs no reading of tokens.
  std::uint32_t length(std::size_t i) const { return entries_[i].length; }
  std::uint32_t targets(std::size_t i) const { return entries_[i].targets; }
  std::uint64_t index(std::size_t i) const { return entries_[i].index; }
  std::uint32_t source(std::size_t i) const { return entries_[i].source; }

  void push_back(const Sample& sample);
  /// `targets`: count_targets(sample), where it is known.
  void push_back(const Sample& sample, std::uint32_t targets);
  /// Behind the samples that are there, those of `other` as samples of data set `source`.
  void append(const SampleList& other, std::uint32_t source);
  /// The samples of these numbers, in their order.
  SampleList select(std::span<const std::uint32_t> numbers) const;

  /// A sample in a file of tokens as code_of() writes them.
  struct Place {
    std::uint64_t first = 0;  // code
    std::uint64_t index = 0;
    std::uint32_t length = 0;
    std::uint32_t targets = 0;
  };
  /// `file` begins with the codes.
  static SampleList of_file(MappedFile file, std::span<const Place> places);

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Sample;
    using difference_type = std::ptrdiff_t;
    using pointer = const Sample*;
    using reference = Sample;
    Iterator(const SampleList& list, std::size_t at) : list_(&list), at_(at) {}
    Sample operator*() const { return (*list_)[at_]; }
    Iterator& operator++() { return ++at_, *this; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const SampleList* list_;
    std::size_t at_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  struct Keeper;
  struct Entry {
    const TokenId* codes = nullptr;
    std::uint64_t index = 0;
    std::uint32_t length = 0;
    std::uint32_t targets = 0;
    std::uint32_t source = 0;
    std::uint32_t keeper = 0;
  };

  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<Keeper>> keepers_;  // of the memory that entries point into
};

/// A token with its label in one number: the id of a target, its complement (negative) where it is masked.
constexpr TokenId code_of(TokenId id, std::int32_t label) { return label == kMasked ? ~id : id; }

}  // namespace rondo::data
