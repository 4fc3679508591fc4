// Tokenizer: what goes in and what comes out, on files small enough to follow by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "small_file.h"

namespace rondo::data {

bool operator==(const TextRange& a, const TextRange& b) { return a.begin == b.begin && a.end == b.end; }
void PrintTo(const TextRange& range, std::ostream* out) { *out << '[' << range.begin << ',' << range.end << ')'; }

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Tokenizer loaded(const Json& file) {
  auto tokenizer = load_json(file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

TEST(Encode, WordsAndTokens_MergeByRank) {
  const Tokenizer tokenizer = loaded(small_file());
  const Encoded encoded = tokenizer.encode("abcde ab<t>c", false);
  EXPECT_THAT(encoded.ids, ElementsAre(7, 8, 5, 6, 10, 2));
  EXPECT_THAT(encoded.ranges, ElementsAre(TextRange{0, 3}, TextRange{3, 5}, TextRange{5, 6}, TextRange{6, 8},
                                          TextRange{8, 11}, TextRange{11, 12}));
}

TEST(Encode, SpecialTokensWanted_StandBeforeWithEmptyRanges) {
  const Tokenizer tokenizer = loaded(small_file());
  const Encoded encoded = tokenizer.encode("ab", true);
  EXPECT_THAT(encoded.ids, ElementsAre(9, 6));
  EXPECT_THAT(encoded.ranges, ElementsAre(TextRange{0, 0}, TextRange{0, 2}));
}

TEST(Encode, EmptyText_GivesOnlyWhatTheTemplateAdds) {
  const Tokenizer tokenizer = loaded(small_file());
  EXPECT_THAT(tokenizer.encode("", false).ids, IsEmpty());
  EXPECT_THAT(tokenizer.encode("", true).ids, ElementsAre(9));
}

TEST(Encode, SymbolsOutsideTheVocabulary_AreLeftOutAndCounted) {
  const Tokenizer tokenizer = loaded(small_file());
  const Encoded encoded = tokenizer.encode("x\xC3\xA9 abc", false);  // x, the two bytes of an e acute
  EXPECT_THAT(encoded.ids, ElementsAre(5, 7));
  EXPECT_EQ(encoded.dropped, 3U);
  EXPECT_THAT(encoded.ranges, ElementsAre(TextRange{3, 4}, TextRange{4, 7}));
}

TEST(Encode, IllFormedUtf8_CountsAsReplacementCharacters) {
  Json file = small_file();
  file["pre_tokenizer"] = nullptr;
  file["model"]["vocab"]["\uFFFD"] = 11;
  const Tokenizer tokenizer = loaded(file);
  // A cut three-byte sequence is one, a surrogate three, a stray byte one.
  const Encoded encoded = tokenizer.encode(
      "a\xE2\x82"
      "b\xED\xA0\x80\xFF"
      "c",
      false);
  EXPECT_THAT(encoded.ids, ElementsAre(0, 11, 1, 11, 11, 11, 11, 2));
  EXPECT_THAT(encoded.ranges, ElementsAre(TextRange{0, 1}, TextRange{1, 3}, TextRange{3, 4}, TextRange{4, 5},
                                          TextRange{5, 6}, TextRange{6, 7}, TextRange{7, 8}, TextRange{8, 9}));
}

TEST(Encode, NormalizedText_KeepsTheOriginalsRanges) {
  Json file = small_file();
  file["normalizer"] = {{"type", "NFC"}};
  file["pre_tokenizer"] = nullptr;
  file["model"]["vocab"]["\u00E9"] = 11;
  const Tokenizer tokenizer = loaded(file);
  const Encoded encoded = tokenizer.encode(
      "ae\xCC\x81"
      "b",
      false);  // e and a combining acute
  EXPECT_THAT(encoded.ids, ElementsAre(0, 11, 1));
  EXPECT_EQ(encoded.ranges[2], (TextRange{4, 5}));
}

TEST(Encode, PrependedText_EachStretchBetweenTokensByItself) {
  Json file = small_file();
  file["normalizer"] = {{"type", "Prepend"}, {"prepend", "e"}};
  const Tokenizer tokenizer = loaded(file);
  EXPECT_THAT(tokenizer.encode("a<s>a", false).ids, ElementsAre(4, 0, 9, 4, 0));
}

TEST(Encode, IgnoreMerges_TakesWholeWordsOfTheVocabulary) {
  Json file = small_file();
  file["model"]["vocab"]["cab"] = 11;
  EXPECT_THAT(loaded(file).encode("cab", false).ids, ElementsAre(2, 6));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(loaded(file).encode("cab", false).ids, ElementsAre(11));
}

TEST(Encode, UnknownTokens_FuseWhereTheFileSaysSo) {
  Json file = small_file();
  file["model"]["unk_token"] = "e";
  EXPECT_THAT(loaded(file).encode("xya", false).ids, ElementsAre(4, 4, 0));
  file["model"]["fuse_unk"] = true;
  const Encoded encoded = loaded(file).encode("xya", false);
  EXPECT_THAT(encoded.ids, ElementsAre(4, 0));
  EXPECT_EQ(encoded.ranges[0], (TextRange{0, 2}));
  EXPECT_EQ(encoded.dropped, 0U);
}

TEST(Encode, TokenThatStrips_TakesTheWhiteSpaceAlong) {
  Json file = small_file();
  file["added_tokens"][1]["lstrip"] = true;
  file["added_tokens"][1]["rstrip"] = true;
  const Encoded encoded = loaded(file).encode("a \n<t>\t b", false);
  EXPECT_THAT(encoded.ids, ElementsAre(0, 10, 1));
  EXPECT_EQ(encoded.ranges[1], (TextRange{1, 8}));
}

/// As the library leaves out pieces without text.
TEST(Encode, TokenThatStripsWhatWasTaken_IsNotThere) {
  Json file = small_file();
  file["added_tokens"][0]["rstrip"] = true;
  file["added_tokens"][1]["lstrip"] = true;
  file["added_tokens"][1]["content"] = "\n";
  EXPECT_THAT(loaded(file).encode("a<s>\nb", false).ids, ElementsAre(0, 9, 1));
  file["added_tokens"][1]["rstrip"] = true;
  EXPECT_THAT(loaded(file).encode("a\n\n\nb<s> \n\n", false).ids, ElementsAre(0, 10, 1, 9));
}

TEST(Encode, TokenOfOneWord_StandsAloneOrNotAtAll) {
  Json file = small_file();
  file["added_tokens"][1]["content"] = "dd";
  file["added_tokens"][1]["single_word"] = true;
  const Tokenizer tokenizer = loaded(file);
  EXPECT_THAT(tokenizer.encode("a dd", false).ids, ElementsAre(0, 5, 10));
  EXPECT_THAT(tokenizer.encode("add", false).ids, ElementsAre(0, 3, 3));
  EXPECT_THAT(tokenizer.encode("dd\xC3\xA9", false).ids, ElementsAre(3, 3));
}

TEST(Encode, VeryLongWordsAndRuns_TakeReasonableTime) {
  const Tokenizer tokenizer = loaded(small_file());
  std::string word;
  for (int i = 0; i < 200000; ++i) word += "abcde";
  EXPECT_EQ(tokenizer.encode(word, false).ids.size(), 400000U);
  EXPECT_EQ(tokenizer.encode(std::string(300000, ' '), false).ids.size(), 300000U);
  EXPECT_EQ(tokenizer.encode(std::string(300000, '<'), false).dropped, 300000U);
}

TEST(Encode, FromManyThreads_GivesTheSame) {
  const auto tokenizer = Tokenizer::load(Documents(RONDO_TEST_DATA "/tokenizer/qwen"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  const std::string text = "The cafe\xCC\x81 <|im_start|> 123 \xE4\xBD\xA0\xE5\xA5\xBD 's";
  const Encoded alone = tokenizer->encode(text, true);
  std::vector<int> different(4, 0);
  std::vector<std::thread> threads;
  for (int& count : different) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer->encode(text, true).ids == alone.ids ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(different, testing::Each(0));
}

TEST(Decode, IdsOutsideTheVocabulary_GiveNothing) {
  const Tokenizer tokenizer = loaded(small_file());
  const std::vector<TokenId> ids = {9, -1, 7, 11, 2000000000, 8};
  EXPECT_EQ(tokenizer.decode(ids, false), "<s>abcde");
  EXPECT_EQ(tokenizer.decode(ids, true), "abcde");
}

TEST(Decode, NoDecoder_JoinsWithBlanks) {
  Json file = small_file();
  file["decoder"] = nullptr;
  EXPECT_EQ(loaded(file).decode(std::vector<TokenId>{7, 8}, false), "abc de");
}

TEST(Decode, FallbackBytesThatAreNoText_GiveOneReplacementEach) {
  Json file = small_file();
  file["decoder"] = {{"type", "ByteFallback"}};
  file["model"]["vocab"]["<0xC3>"] = 9;
  file["model"]["vocab"]["<0xA9>"] = 10;
  const Tokenizer tokenizer = loaded(file);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0, 9, 10, 1}, false),
            "a\xC3\xA9"
            "b");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{10, 9}, false), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokens, NamesAndIds_GoBothWays) {
  const Tokenizer tokenizer = loaded(small_file());
  EXPECT_EQ(tokenizer.id_of("abc"), 7);
  EXPECT_EQ(tokenizer.id_of("<t>"), 10);
  EXPECT_EQ(tokenizer.id_of("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(10), "<t>");
  EXPECT_EQ(tokenizer.token_of(-5), "");
  EXPECT_EQ(tokenizer.token_of(11), "");
  EXPECT_EQ(tokenizer.size(), 11U);
  EXPECT_TRUE(tokenizer.is_special(9));
  EXPECT_FALSE(tokenizer.is_special(10));
  EXPECT_FALSE(tokenizer.is_special(7));
}

TEST(Tokens, AddedTokensInTheVocabulary_KeepItsIds) {
  Json file = small_file();
  file["added_tokens"][0]["content"] = "abc";
  const Tokenizer tokenizer = loaded(file);
  EXPECT_TRUE(tokenizer.is_special(7));
  EXPECT_EQ(tokenizer.id_of("<t>"), 9);
  EXPECT_THAT(tokenizer.encode("xabcd", false).ids, ElementsAre(7, 3));
}

}  // namespace
}  // namespace rondo::data
