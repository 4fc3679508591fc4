// Hashes and counter-based numbers are those of their specifications.
#include "rondo/base/random.h"

#include <gtest/gtest.h>

namespace rondo {
namespace {

TEST(Draw64, KnownSeed_GivesTheOutputsOfSplitMix64) {
  // The first outputs of the published generator from state 1234567.
  constexpr std::uint64_t kOutputs[] = {6457827717110365317ULL, 3203168211198807973ULL, 9817491932198370423ULL,
                                        4593380528125082431ULL, 16408922859458223821ULL};
  for (std::uint64_t i = 0; i < std::size(kOutputs); ++i) EXPECT_EQ(draw64(1234567, i), kOutputs[i]) << i;
  EXPECT_EQ(mix64(1234567), kOutputs[0]);
  EXPECT_EQ(mix64(0), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(spread64(0), 0U);
}

TEST(Fnv1a64, KnownTexts_GiveThePublishedValues) {
  EXPECT_EQ(fnv1a64(""), 0xCBF29CE484222325ULL);
  EXPECT_EQ(fnv1a64("a"), 0xAF63DC4C8601EC8CULL);
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171F73967E8ULL);
  EXPECT_NE(fnv1a64("\xff"), fnv1a64("\x7f"));  // bytes count without sign
}

}  // namespace
}  // namespace rondo
