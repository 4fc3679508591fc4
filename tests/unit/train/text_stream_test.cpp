// Answers shown piece by piece: together the pieces are the answer's text.
#include "text_stream.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace rondo::train {
namespace {

data::Tokenizer tokenizer_of(const char* style) {
  auto loaded = data::Tokenizer::load(Documents(std::filesystem::path(RONDO_TEST_DATA) / "tokenizer" / style));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

/// What is shown at each of these tokens, and at the end.
std::vector<std::string> pieces_of(const data::Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  std::string whole;
  for (const std::string& token : tokens) {
    const auto id = tokenizer.id_of(token);
    EXPECT_TRUE(id.has_value()) << token;
    pieces.push_back(stream.add(id.value_or(0)));
    whole += pieces.back();
  }
  pieces.push_back(stream.rest());
  EXPECT_EQ(whole + pieces.back(), stream.text());
  return pieces;
}

TEST(TextStream, BytesThatAreNoUtf8_LoseNothingOfTheAnswer) {
  const data::Tokenizer tokenizer = tokenizer_of("llama2");
  const std::string mark = "\xEF\xBF\xBD";
  // K by itself, but no more so with the byte behind it.
  EXPECT_EQ(pieces_of(tokenizer, {"a", "<0x4B>", "<0xFF>", "b", "c"}),
            (std::vector<std::string>{"a", "", "", mark + mark + "b", "c", ""}));
  EXPECT_EQ(pieces_of(tokenizer, {"<0xC3>", "<0xA9>", "<0xC3>", "a", "b"}),
            (std::vector<std::string>{"", "", "", mark + mark + mark + "a", "b", ""}));
  // A special token shows nothing and parts no run.
  EXPECT_EQ(pieces_of(tokenizer, {"<0x4B>", "</s>", "<0xFF>", "a"}),
            (std::vector<std::string>{"", "", "", mark + mark + "a", ""}));
}

TEST(TextStream, BytesOfCharacters_ComeWithTheRunsEnd) {
  const data::Tokenizer tokenizer = tokenizer_of("llama2");
  const std::string accented = "\xC3\xA9";
  EXPECT_EQ(pieces_of(tokenizer, {"a", "<0xC3>", "<0xA9>", "b"}),
            (std::vector<std::string>{"a", "", "", accented + "b", ""}));
  EXPECT_EQ(pieces_of(tokenizer, {"a", "<0xC3>", "<0xA9>"}), (std::vector<std::string>{"a", "", "", accented}));
}

}  // namespace
}  // namespace rondo::train
