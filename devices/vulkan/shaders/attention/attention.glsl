// What the attention kernels share. They work on tiles of kTile queries and kTile keys of one head: scores exist a tile
// at a time, in shared memory. kTile follows from the head's size, so that the tiles fit.
//
// Channels go by fours, the last filled up with zeros. 64 invocations share out the kTile rows of a tile, kLanes to a
// row: `row`, and `lane` within it. A lane's fours are lane, lane + kLanes, ...; its columns of scores likewise.
#include "common.glsl"
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWidth = 64;  // of a head
layout(constant_id = 2) const uint kTile = 16;
layout(constant_id = 3) const bool kCached = false;  // keys are a cache's rows, queries stand at `positions`
layout(constant_id = 4) const bool kCapped = false;
#include "attention_scores.glsl"

const uint kLanes = 64 / kTile;
const uint kFours = (kWidth + 3) / 4;
const uint kPitch = kFours + 1;
const uint kEach = (kFours + kLanes - 1) / kLanes;    // fours of a lane
const uint kTogether = kFours % 4 == 0 ? 4 : 1;       // fours of a turn of a loop over them
const uint kColumns = (kTile + kLanes - 1) / kLanes;  // columns of scores of a lane
const uint kRowFours = (kTile + 3) / 4;               // fours of a row of scores
const uint kOfFour = kTile < 4 ? kTile : 4;           // of one, those that are there

/// Four channels of a tensor [tokens, heads, kWidth] from channel 4 * four on.
vec4 load_channels(uint64_t from, uint token_and_head, uint four) {
  const uint first = token_and_head * kWidth + 4 * four;
  if (kWidth % 4 == 0) return widened_raw(kType, 4, load_raw(from, kType, 4, first));
  vec4 value = vec4(0.0);
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (4 * four + j < kWidth) value[j] = load(from, kType, first + j);
  }
  return value;
}
/// Rows of a tile are read without asking: those past the last are taken for the last, whose numbers come to nothing,
/// so that no read waits for the one before it (see matmul.comp). `last` is not negative. Reads past the tile are its
/// last row's again, and write the same numbers.
const uint kReads = (kTile * kFours + 63) / 64;  // of an invocation, of a tile
uint row_of_read(uint i) { return min((i * 64 + invocation()) / kFours, kTile - 1); }
uint four_of_read(uint i) { return (i * 64 + invocation()) % kFours; }
vec4 read_of_tile(uint64_t from, uint i, int first, int last, uint head, uint heads) {
  return load_channels(from, uint(min(first + int(row_of_read(i)), last)) * heads + head, four_of_read(i));
}
uint place_of_read(uint i) { return row_of_read(i) * kPitch + four_of_read(i); }
void store_channels(uint64_t to, uint token_and_head, uint four, vec4 value) {
  if (kWidth % 4 == 0) {
    store_raw(to, kType, token_and_head * kWidth + 4 * four, value);
    return;
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    if (4 * four + j < kWidth) store(to, kType, token_and_head * kWidth + 4 * four + j, value[j]);
  }
}
