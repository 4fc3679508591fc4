// Two texts beside each other, and text that cannot steer a terminal.
#include "rondo/apps/columns.h"

#include <gmock/gmock.h>

namespace rondo::apps {
namespace {

using testing::ElementsAre;

TEST(Wrapped, LongLines_BreakAtBlanksAndOtherwiseAtTheWidth) {
  EXPECT_THAT(wrapped("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("abcdefgh", 3), ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(wrapped("a\n\nb", 8), ElementsAre("a", "", "b"));
  EXPECT_THAT(wrapped("", 8), ElementsAre(""));
  // Characters of several bytes stay whole.
  EXPECT_THAT(wrapped("äöüß", 2), ElementsAre("äö", "üß"));
}

TEST(SideBySide, UnevenTexts_StandInTwoColumns) {
  EXPECT_EQ(side_by_side("base", "one two", "adapter", "uno", 13), "base  | adapter\none   | uno\ntwo   |\n");
}

TEST(Harmless, ControlCharacters_AreShown) {
  EXPECT_EQ(harmless("a\x1b[31mb\tc\nd\x7f"), "a\\x1b[31mb\tc\nd\\x7f");
  EXPECT_EQ(harmless("\xC2\x9B"
                     "31m \xC3\xA4"),
            "\\x9b31m \xC3\xA4");
}

}  // namespace
}  // namespace rondo::apps
