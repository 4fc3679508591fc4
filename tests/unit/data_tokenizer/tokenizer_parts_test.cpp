// The tokenizer's parts by themselves: regular expressions, normal forms, character classes, merging, tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bpe.h"
#include "normalizer.h"
#include "pattern.h"
#include "splitting.h"
#include "token_table.h"
#include "unicode.h"
#include "utf8.h"

namespace rondo::data::tok {
namespace {

using testing::ElementsAre;

std::vector<std::string> parts(std::string_view pattern, std::string_view text,
                               SplitBehavior behavior = SplitBehavior::kIsolated) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().ToString();
  RegexScratch scratch;
  Pieces pieces = whole_text(text);
  std::vector<Piece> out;
  regex->find(text, scratch, scratch.spans);
  split_piece(pieces.list.front(), scratch.spans, behavior, out);
  std::vector<std::string> texts;
  for (const Piece& piece : out) texts.emplace_back(piece.text());
  return texts;
}

std::string normal(NormalFormKind kind, std::string_view text) {
  std::vector<Normalizer> steps;
  steps.emplace_back(NormalForm{kind});
  return normalize(steps, text);
}

TEST(Regex, IntervalWithPlus_RepeatsTheInterval) {
  EXPECT_THAT(parts("a{1,2}+", "aaaa b"), ElementsAre("aaaa", " b"));
  EXPECT_THAT(parts("(?:ab){2}+", "abababab"), ElementsAre("abababab"));
}

TEST(Regex, IntervalWithoutMinimum_StartsAtNone) {
  EXPECT_THAT(parts("a{,2}", "aaaa b"), ElementsAre("aa", "aa", " ", "b"));
}

TEST(Regex, LineAnchors_MatchAtEveryLine) {
  EXPECT_THAT(parts("$", "a\nb\n"), ElementsAre("a", "\nb", "\n"));
  EXPECT_THAT(parts("^", "a\nb\n"), ElementsAre("a\n", "b\n"));
}

TEST(Regex, EscapesThatDiffer_AreOnigurumas) {
  EXPECT_THAT(parts("\\h+", "xfa1g"), ElementsAre("x", "fa1", "g"));
  EXPECT_THAT(parts("\\v",
                    "a\x0B"
                    "b\nc"),
              ElementsAre("a", "\x0B", "b\nc"));
  EXPECT_THAT(parts("\\w+", "e\xCC\x81_\xC2\xB2-"), ElementsAre("e\xCC\x81_\xC2\xB2", "-"));
  EXPECT_THAT(parts("\\u0061\\x62\\x{63}", "abcd"), ElementsAre("abc", "d"));
  EXPECT_THAT(parts("{\\p{^L}", "a{1"), ElementsAre("a", "{1"));
}

TEST(Regex, SignsOfLatin1_AreWordsOutsideOfSetsAlone) {
  EXPECT_THAT(parts("\\w+", "a\xC2\xB2-"), ElementsAre("a\xC2\xB2", "-"));
  EXPECT_THAT(parts("[\\w]+", "a\xC2\xB2-"), ElementsAre("a", "\xC2\xB2-"));
  EXPECT_THAT(parts("[^\\w\\s]+", "a\xC2\xBD-b"), ElementsAre("a", "\xC2\xBD-", "b"));
}

TEST(Regex, MongolianVowelSeparator_IsNoWhiteSpace) {
  EXPECT_THAT(parts("\\s",
                    "a\xE1\xA0\x8E"
                    "b c"),
              ElementsAre("a\xE1\xA0\x8E"
                          "b",
                          " ", "c"));
}

TEST(Regex, CharactersNewerThanTheEngine_HaveTheirCategory) {
  // U+2EBF0 is an ideograph of Unicode 15.1, U+1E4D0 a letter of 15.0.
  EXPECT_THAT(parts("\\p{Lo}+",
                    "a\xF0\xAE\xAF\xB0\xF0\x9E\x93\x90"
                    "1"),
              ElementsAre("a", "\xF0\xAE\xAF\xB0\xF0\x9E\x93\x90", "1"));
  EXPECT_THAT(parts("\\p{Han}", "\xF0\xAE\xAF\xB0\xF0\x9E\x93\x90"),
              ElementsAre("\xF0\xAE\xAF\xB0", "\xF0\x9E\x93\x90"));
}

TEST(Regex, ScriptNames_LeaveSharedCharactersOut) {
  EXPECT_THAT(parts("\\p{Hiragana}+", "\xE3\x81\x82\xE3\x83\xBC"), ElementsAre("\xE3\x81\x82", "\xE3\x83\xBC"));
}

TEST(Regex, WithoutAnEqual_IsRefused) {
  for (const char* pattern : {"(a)\\1", "\\G", "\\K", "[[:alpha:]]", "[a&&b]", "[a[b]]", "a(?i)b", "(?<n>a)", "(*FAIL)",
                              "a{2}?", "\\p{Nonsense}", "\\p", "[a", "(", "\\", "[]a]", "\\xE9", "\\C", "[\\W]"}) {
    EXPECT_EQ(Regex::compile(pattern).status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
}

TEST(SplitPiece, Behaviors_DoWhatTheirNamesSay) {
  const char* const text = "the-final--countdown";
  EXPECT_THAT(parts("-", text, SplitBehavior::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(parts("-", text, SplitBehavior::kIsolated), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(parts("-", text, SplitBehavior::kMergedWithPrevious), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(parts("-", text, SplitBehavior::kMergedWithNext), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(parts("-", text, SplitBehavior::kContiguous), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(NormalForms, ComposeAndOrderMarks) {
  EXPECT_EQ(normal(NormalFormKind::kNfc, "e\xCC\x82\xCC\xA3"), "\xE1\xBB\x87");  // both marks, in the other order
  EXPECT_EQ(normal(NormalFormKind::kNfd, "\xE1\xBB\x87"), "e\xCC\xA3\xCC\x82");
  EXPECT_EQ(normal(NormalFormKind::kNfkc, "\xEF\xAC\x81\xC2\xBD"),
            "fi1\xE2\x81\x84"
            "2");
  EXPECT_EQ(normal(NormalFormKind::kNfc, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");  // Hangul
}

TEST(NormalForms, CharactersAfterUnicodeNine_AreLeftAlone) {
  const std::string dives = "\xF0\x91\xA4\xB8";  // U+11938 of Unicode 13.0 decomposes since then
  EXPECT_EQ(normal(NormalFormKind::kNfd, dives), dives);
  const std::string reiwa = "\xE3\x8B\xBF";  // U+32FF of Unicode 12.1
  EXPECT_EQ(normal(NormalFormKind::kNfkc, reiwa), reiwa);
}

TEST(CharacterClasses, Numbers_AreThoseOfTheNewestUnicode) {
  EXPECT_TRUE(is_numeric(U'7') && is_numeric(0xBD) && is_numeric(0x2167) && is_numeric(0x11DE0));
  EXPECT_FALSE(is_numeric(U'a') || is_numeric(0x4E00));
}

TEST(CharacterClasses, LowerCase_OfOneCharacterOnly) {
  std::string out;
  EXPECT_EQ(append_lower_case(out, 0x130), 2);
  append_lower_case(out, 0x3A3);
  append_lower_case(out, 0x10D50);
  EXPECT_EQ(out, "i\xCC\x87\xCF\x83\xF0\x90\xB5\xB0");
}

TEST(Utf8, IllFormedSequences_AreReplacedByMaximalParts) {
  EXPECT_EQ(lossy_utf8("\xF0\x90\x80"
                       "a\xC0\x80"),
            "\xEF\xBF\xBD"
            "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_FALSE(is_utf8("\xF4\x90\x80\x80"));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
}

TEST(TokenTable, ManyKeys_AreFoundAgain) {
  TokenTable table;
  for (std::uint32_t i = 0; i < 5000; ++i) table.insert("key" + std::to_string(i), i);
  table.insert("key7", 70000);
  table.insert("", 9);
  EXPECT_EQ(table.size(), 5001U);
  EXPECT_EQ(table.find("key4999"), 4999U);
  EXPECT_EQ(table.find("key7"), 70000U);
  EXPECT_EQ(table.find(""), 9U);
  EXPECT_EQ(table.find("key5000"), std::nullopt);
}

// The vocabulary of all strings over {a, b} up to five letters, with merges in a scrambled order.
Bpe scrambled_bpe() {
  TokenTable vocabulary;
  std::vector<std::string> tokens = {"a", "b"};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].size() == 5) break;
    tokens.push_back(tokens[i] + "a");
    tokens.push_back(tokens[i] + "b");
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) vocabulary.insert(tokens[i], static_cast<std::uint32_t>(i));
  MergeTable merges(tokens.size() * 5);
  std::uint32_t rank = 0;
  for (std::size_t k = 0; k < tokens.size(); ++k) {
    const std::string& token = tokens[(k * 37) % tokens.size()];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      merges.insert(static_cast<TokenId>(*vocabulary.find(token.substr(0, cut))),
                    static_cast<TokenId>(*vocabulary.find(token.substr(cut))),
                    {rank++, static_cast<TokenId>(*vocabulary.find(token))});
    }
  }
  return {BpeOptions{}, std::move(vocabulary), std::move(merges)};
}

// Sixty symbols go through the queue, the two halves through the search: both must apply the same merges.
TEST(Bpe, ShortAndLongWords_MergeAlike) {
  const Bpe bpe = scrambled_bpe();
  Bpe::Scratch scratch;
  std::uint64_t state = 3;
  for (int round = 0; round < 500; ++round) {
    std::string word;
    std::string halves[2];
    for (int i = 0; i < 60; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      word += (state >> 40U) % 3 == 0 ? 'b' : 'a';
    }
    std::vector<WordToken> whole;
    bpe.tokenize(word, scratch, whole);
    // Any cut between two tokens of the whole leaves both sides as they are when they are tokenized by themselves.
    const WordToken& middle = whole[whole.size() / 2];
    halves[0] = word.substr(0, middle.begin);
    halves[1] = word.substr(middle.begin);
    std::vector<WordToken> joined;
    for (const std::string& half : halves) bpe.tokenize(half, scratch, joined);
    ASSERT_EQ(whole.size(), joined.size()) << word;
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i].id, joined[i].id) << word;
  }
}

}  // namespace
}  // namespace rondo::data::tok
