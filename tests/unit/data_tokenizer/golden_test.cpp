// Ids, ranges and decoded text against the `tokenizers` library, on 10,000 strings for each small tokenizer.
//
// tests/reference/tokenizer/make_goldens.py writes the expected hashes and says what they are taken over.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "rondo/data/tokenizer.h"
#include "string_maker.h"

namespace rondo::data {
namespace {

constexpr std::size_t kCount = 10000;
constexpr std::size_t kEvery = 8;
constexpr std::uint64_t kSeed = 7;

class Hash {
 public:
  template <typename Number>
  void add(Number number) {
    std::array<unsigned char, sizeof(Number)> bytes{};
    std::memcpy(bytes.data(), &number, sizeof number);
    for (const unsigned char byte : bytes) add_byte(byte);
  }
  void add_text(const std::string& text) {
    for (const char byte : text) add_byte(static_cast<unsigned char>(byte));
    add_byte(0);
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001B3U; }
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

std::vector<std::uint64_t> read_hashes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::uint64_t> hashes(bytes.size() / 8);
  std::memcpy(hashes.data(), bytes.data(), hashes.size() * 8);
  return hashes;
}

std::uint64_t hash_of_ids(const Encoded& encoded) {
  Hash hash;
  for (const TokenId id : encoded.ids) hash.add(id);
  return hash.value();
}

std::uint64_t hash_of_rest(const Tokenizer& tokenizer, const Encoded& encoded, bool ranges_count) {
  Hash hash;
  if (ranges_count) {
    for (const TextRange& range : encoded.ranges) {
      hash.add(static_cast<std::uint32_t>(range.begin));
      hash.add(static_cast<std::uint32_t>(range.end));
    }
  }
  hash.add_text(tokenizer.decode(encoded.ids, false));
  hash.add_text(tokenizer.decode(encoded.ids, true));
  return hash.value();
}

std::string described(const Encoded& encoded) {
  std::string out;
  for (std::size_t i = 0; i < encoded.ids.size(); ++i) {
    out += std::to_string(encoded.ids[i]) + " [" + std::to_string(encoded.ranges[i].begin) + "," +
           std::to_string(encoded.ranges[i].end) + ") ";
  }
  return out;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, TenThousandStrings_AreTheLibrarys) {
  const std::string root = RONDO_TEST_DATA "/tokenizer/";
  const std::string name = GetParam();
  const auto tokenizer = Tokenizer::load(Documents(root + name));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const std::vector<std::uint64_t> hashes = read_hashes(root + name + "/golden.bin");
  ASSERT_EQ(hashes.size(), kCount + kCount / kEvery);
  StringMaker maker(kSeed, read_fragments(root + "fragments.txt"));
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::string text = maker.string();
    const Encoded encoded = tokenizer->encode(text, i % 2 == 0);
    ASSERT_EQ(encoded.ids.size(), encoded.ranges.size());
    ASSERT_EQ(hash_of_ids(encoded), hashes[i])
        << "the ids of string " << i << " '" << text << "' differ: " << described(encoded);
    if (i % kEvery != 0) continue;
    // The library's ranges slip where symbols are dropped and where unknown tokens come late: ours do not.
    const bool ranges_count = name != "unknowns" && encoded.dropped == 0;
    ASSERT_EQ(hash_of_rest(*tokenizer, encoded, ranges_count), hashes[kCount + i / kEvery])
        << "the ranges or the decoded text of string " << i << " '" << text << "' differ: " << described(encoded) << "'"
        << tokenizer->decode(encoded.ids, false) << "'";
  }
}

/// tests/reference/tokenizer/make_emptied.py writes these strings, and what the library makes of them.
TEST(EmptiedTokens, Strings_AreTheLibrarys) {
  for (const char* kind : {"plain", "single_word"}) {
    const std::string folder = std::string(RONDO_TEST_DATA "/tokenizer_emptied/") + kind;
    const auto tokenizer = Tokenizer::load(Documents(folder));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    std::ifstream in(folder + "/golden.json");
    const auto cases = nlohmann::json::parse(in);
    ASSERT_EQ(cases.size(), 60U);
    for (const auto& one : cases) {
      const Encoded encoded = tokenizer->encode(one["text"].get<std::string>(), true);
      EXPECT_EQ(encoded.ids, one["ids"].get<std::vector<TokenId>>()) << kind << one["text"] << described(encoded);
      ASSERT_EQ(encoded.ranges.size(), one["ranges"].size()) << kind << one["text"];
      for (std::size_t i = 0; i < encoded.ranges.size(); ++i) {
        EXPECT_EQ(encoded.ranges[i].begin, one["ranges"][i][0]) << kind << one["text"] << described(encoded);
        EXPECT_EQ(encoded.ranges[i].end, one["ranges"][i][1]) << kind << one["text"] << described(encoded);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden,
                         testing::Values("gpt2", "llama3", "llama4", "qwen", "smollm2", "deepseek", "llama2",
                                         "mistral_v3", "gemma", "tekken", "folding", "unknowns", "rewriting"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace rondo::data
