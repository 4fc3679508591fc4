// The size of the chunks in which links are used.
#include "rondo/devices/chunk.h"

#include <gtest/gtest.h>

namespace rondo::devices {
namespace {

TEST(ChunkFor, AnyLink_TakesUnderAMillisecondForTwo) {
  for (const double slow : {0.0, 1.0, 1e8}) EXPECT_EQ(chunk_for(slow), 256_KiB);
  for (const double fast : {1e11, 1e30}) EXPECT_EQ(chunk_for(fast), 16_MiB);
  EXPECT_EQ(chunk_for(12e9), 1171 * 4_KiB);
  for (const double speed : {3e9, 12e9, 25e9}) {
    EXPECT_LT(2 * static_cast<double>(chunk_for(speed)) / speed, 1e-3);
    EXPECT_EQ(chunk_for(speed) % 4_KiB, 0U);
  }
}

}  // namespace
}  // namespace rondo::devices
