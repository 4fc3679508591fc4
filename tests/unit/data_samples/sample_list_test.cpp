// Lists of samples give back what they were given, whatever holds the tokens.
#include "rondo/data/sample_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

#include "test_support.h"
#include "token_file.h"

namespace rondo::data {
namespace {

using testing::ElementsAre;

/// `tokens` of them, every third one masked.
Sample sample_of(std::uint64_t index, std::size_t tokens) {
  Sample sample;
  sample.index = index;
  for (std::size_t t = 0; t < tokens; ++t) {
    sample.ids.push_back(static_cast<TokenId>(7 * index + t));
    sample.labels.push_back((index + t) % 3 == 0 ? kMasked : sample.ids.back());
  }
  return sample;
}

void expect_equal(const Sample& found, const Sample& expected) {
  EXPECT_EQ(found.ids, expected.ids);
  EXPECT_EQ(found.labels, expected.labels);
  EXPECT_EQ(found.index, expected.index);
  EXPECT_EQ(found.source, expected.source);
}

/// Short ones, and ones longer than a chunk of memory.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const std::size_t tokens : {2U, 3U, 1000U, 300'000U, 5U, 262'144U, 7U}) {
    all.push_back(sample_of(10 * all.size(), tokens));
  }
  return all;
}

TEST(SampleList, Samples_ComeBackAsTheyWereGiven) {
  SampleList list;
  for (const Sample& sample : samples()) list.push_back(sample);
  ASSERT_EQ(list.size(), samples().size());
  std::size_t i = 0;
  for (const Sample& sample : list) {
    expect_equal(sample, samples()[i]);
    EXPECT_EQ(list.length(i), sample.ids.size());
    EXPECT_EQ(list.targets(i), count_targets(sample));
    EXPECT_EQ(list.index(i), sample.index);
    ++i;
  }
}

TEST(SampleList, IdZero_IsToldFromAMaskedOne) {
  SampleList list;
  Sample zero;
  zero.ids = {0, 0, 0};
  zero.labels = {kMasked, 0, kMasked};
  list.push_back(zero);
  expect_equal(list[0], zero);
}

/// Codes of samples one behind the other, mapped, and where they lie.
struct MappedSamples {
  explicit MappedSamples(const std::filesystem::path& path) {
    std::string codes;
    for (const Sample& sample : samples()) {
      places.push_back({codes.size() / sizeof(TokenId), sample.index, static_cast<std::uint32_t>(sample.ids.size()),
                        count_targets(sample)});
      for (std::size_t t = 0; t < sample.ids.size(); ++t) {
        const TokenId code = code_of(sample.ids[t], sample.labels[t]);
        codes.append(reinterpret_cast<const char*>(&code), sizeof(code));
      }
    }
    auto mapped = MappedFile::open(testing_support::write(path, codes));
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    if (mapped.ok()) file = *std::move(mapped);
  }
  std::optional<MappedFile> file;
  std::vector<SampleList::Place> places;
};

/// What is mapped counts as the process's memory, and the kernel maps more than is asked for.
TEST(SampleList, OfAFile_IsReadPastItsMapping) {
  MappedSamples mapped(testing_support::fresh_folder() / "codes");
  const auto bytes = mapped.file->bytes();
  const SampleList list = SampleList::of_file(*std::move(mapped.file), mapped.places);
  ASSERT_EQ(::mprotect(const_cast<std::byte*>(bytes.data()), bytes.size(), PROT_NONE), 0);
  for (std::size_t i = 0; i < list.size(); ++i) expect_equal(list[i], samples()[i]);
}

TEST(SampleList, OfAFileThatIsGone_IsReadFromTheMapping) {
  const auto path = testing_support::fresh_folder() / "codes";
  MappedSamples mapped(path);
  std::filesystem::remove(path);
  const SampleList list = SampleList::of_file(*std::move(mapped.file), mapped.places);
  for (std::size_t i = 0; i < list.size(); ++i) expect_equal(list[i], samples()[i]);
}

TEST(SampleList, Copies_GrowApart) {
  SampleList list;
  list.push_back(sample_of(0, 4));
  SampleList copy = list;
  list.push_back(sample_of(1, 4));
  copy.push_back(sample_of(2, 5));
  copy.push_back(sample_of(3, 6));
  list.push_back(sample_of(4, 7));
  expect_equal(list[1], sample_of(1, 4));
  expect_equal(list[2], sample_of(4, 7));
  expect_equal(copy[1], sample_of(2, 5));
  expect_equal(copy[2], sample_of(3, 6));
}

TEST(SampleList, Appended_BelongToTheirSource) {
  SampleList first;
  first.push_back(sample_of(0, 4));
  SampleList second;
  second.push_back(sample_of(0, 5));
  second.push_back(sample_of(1, 6));
  first.append(second, 3);
  first.push_back(sample_of(9, 2));
  ASSERT_EQ(first.size(), 4U);
  Sample expected = sample_of(1, 6);
  expected.source = 3;
  expect_equal(first[2], expected);
  expect_equal(first[3], sample_of(9, 2));
  EXPECT_EQ(first.source(0), 0U);
}

TEST(SampleList, Selected_AreThoseInThatOrder) {
  SampleList list;
  for (std::uint64_t i = 0; i < 5; ++i) list.push_back(sample_of(i, 3 + i));
  const SampleList chosen = list.select(std::vector<std::uint32_t>{4, 0, 4});
  std::vector<std::uint64_t> indices;
  for (const Sample& sample : chosen) indices.push_back(sample.index);
  EXPECT_THAT(indices, ElementsAre(4, 0, 4));
  expect_equal(chosen[2], sample_of(4, 7));
}

class TokenFile : public testing::Test {
 protected:
  const std::filesystem::path path_ = testing_support::fresh_folder() / "deeper" / "set.tokens";

  void write() {
    auto writer = TokenFileWriter::create(path_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Sample& sample : samples()) ASSERT_TRUE(writer->append(sample, count_targets(sample)).ok());
    EXPECT_FALSE(std::filesystem::exists(path_));  // nobody sees half of it
    DataReport report;
    report.format = "messages";
    report.records = 70;
    report.kept = samples().size();
    report.first_without_target = {3, 5};
    report.largest_token = 12;
    ASSERT_TRUE(writer->finish(report).ok());
  }
};

TEST_F(TokenFile, Written_ReadsBackEqual) {
  write();
  const auto set = read_token_file(path_);
  ASSERT_TRUE(set.has_value());
  ASSERT_EQ(set->samples.size(), samples().size());
  for (std::size_t i = 0; i < samples().size(); ++i) {
    expect_equal(set->samples[i], samples()[i]);
    EXPECT_EQ(set->samples.targets(i), count_targets(samples()[i]));
  }
  EXPECT_EQ(set->report.format, "messages");
  EXPECT_EQ(set->report.records, 70U);
  EXPECT_EQ(set->report.largest_token, 12);
  EXPECT_THAT(set->report.first_without_target, ElementsAre(3, 5));
}

TEST_F(TokenFile, Samples_OutliveTheFilesName) {
  write();
  const auto set = read_token_file(path_);
  ASSERT_TRUE(set.has_value());
  std::filesystem::remove(path_);
  const SampleList chosen = set->samples.select(std::vector<std::uint32_t>{3});
  expect_equal(chosen[0], samples()[3]);
}

TEST_F(TokenFile, EveryChangedByteAndEveryCut_IsNoticed) {
  write();
  auto whole = read_file(path_);
  ASSERT_TRUE(whole.ok());
  for (std::size_t at = 0; at < whole->size(); at += at < 64 || at + 400 > whole->size() ? 1U : 99'991U) {
    std::string changed = *whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    testing_support::write(path_, changed);
    EXPECT_FALSE(read_token_file(path_).has_value()) << at;
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{39}, std::size_t{71}, whole->size() / 2, whole->size() - 1}) {
    testing_support::write(path_, whole->substr(0, size));
    EXPECT_FALSE(read_token_file(path_).has_value()) << size;
  }
  testing_support::write(path_, *whole);
  EXPECT_TRUE(read_token_file(path_).has_value());
}

TEST_F(TokenFile, Unfinished_LeavesNothingBehind) {
  {
    auto writer = TokenFileWriter::create(path_);
    ASSERT_TRUE(writer.ok());
    for (const Sample& sample : samples()) ASSERT_TRUE(writer->append(sample, count_targets(sample)).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(path_.parent_path()));
}

}  // namespace
}  // namespace rondo::data
