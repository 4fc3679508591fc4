// A text that is tokenized in pieces has the tokens of the whole.
#include "long_text.h"

#include <gtest/gtest.h>

#include <random>

#include "test_support.h"

namespace rondo::data {
namespace {

namespace fs = std::filesystem;

std::vector<TokenId> in_pieces(const Tokenizer& tokenizer, const std::string& text, const LongTextOptions& options,
                               std::uint64_t& dropped) {
  std::vector<TokenId> ids;
  const LongText read = encode_long(tokenizer, text, options, [&ids](std::span<const TokenId> more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return true;
  });
  EXPECT_EQ(read.not_utf8_at, std::nullopt);
  dropped = read.dropped;
  return ids;
}

/// Words, numbers, runs of spaces and line ends, other scripts.
std::string mixed_text(std::uint64_t seed, std::size_t bytes) {
  static const std::vector<std::string> kParts = {
      "the ",  "house",     "'s ",         "\n",   "\n\n",  "   ", "12345", " 7",
      "Żółć ", "日本語の",  "привет ",     "🙂", "(a+b)", "\t",  ". ",    "internationalisation ",
      "x",     "e\xcc\x81", "    return ", "=="};
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < bytes) text += kParts[random() % kParts.size()];
  return text;
}

class LongText : public testing::TestWithParam<const char*> {};

TEST_P(LongText, Pieces_HaveTheTokensOfTheWhole) {
  const auto tokenizer = Tokenizer::load(Documents(fs::path(RONDO_TEST_DATA) / "tokenizer" / GetParam()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const std::string text = mixed_text(seed, 30'000);
    const Encoded whole = tokenizer->encode(text, true);
    for (const std::size_t piece : {700U, 3000U, 29'990U}) {
      std::uint64_t dropped = 0;
      EXPECT_EQ(in_pieces(*tokenizer, text, {piece, 512}, dropped), whole.ids) << seed << " " << piece;
      EXPECT_EQ(dropped, whole.dropped);
    }
  }
}

TEST_P(LongText, TextWithoutAPlaceToCut_IsTokenizedAsOne) {
  const auto tokenizer = Tokenizer::load(Documents(fs::path(RONDO_TEST_DATA) / "tokenizer" / GetParam()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const std::string& text : {std::string(6000, ' '), std::string(6001, 'a'), std::string("x")}) {
    std::uint64_t dropped = 0;
    EXPECT_EQ(in_pieces(*tokenizer, text, {500, 100}, dropped), tokenizer->encode(text, true).ids) << text.size();
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, LongText,
                         testing::Values("gpt2", "llama2", "llama3", "qwen", "deepseek", "mistral_v3"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(LongText, Stopped_AsksForNoMore) {
  const auto model = testing_support::load_model("chatml");
  std::size_t calls = 0;
  encode_long(*model.tokenizer, mixed_text(1, 50'000), {1000, 300}, [&calls](std::span<const TokenId>) {
    ++calls;
    return calls < 3;
  });
  EXPECT_EQ(calls, 3U);
}

TEST(LongText, NotUtf8_IsFoundInWhicheverPiece) {
  const auto model = testing_support::load_model("chatml");
  const std::string sound = mixed_text(2, 10'000);
  const auto none = [](std::span<const TokenId>) { return true; };
  for (const std::size_t near : {std::size_t{0}, std::size_t{999}, std::size_t{5000}, sound.size()}) {
    std::size_t at = near;  // between two characters
    while (at < sound.size() && (static_cast<unsigned char>(sound[at]) & 0xc0U) == 0x80U) ++at;
    // A stray byte, the rest of a character, the beginning of one, and many of these.
    for (const std::string& bytes :
         {std::string("\xff"), std::string("\x80"), std::string("\xe3\x81"), std::string(3000, '\x80')}) {
      const std::string text = sound.substr(0, at) + bytes + sound.substr(at);
      EXPECT_EQ(encode_long(*model.tokenizer, text, {1000, 300}, none).not_utf8_at, at) << bytes.size();
    }
  }
  // What is not read is not looked at.
  const auto stop = [](std::span<const TokenId>) { return false; };
  EXPECT_EQ(encode_long(*model.tokenizer, sound + "\xff", {1000, 300}, stop).not_utf8_at, std::nullopt);
}

}  // namespace
}  // namespace rondo::data
