// What the attention kernels share. They work on tiles of kTile queries and kTile keys of one head: scores exist a tile
// at a time, in shared memory. kTile follows from the head's size, so that the tiles fit.
//
// 64 invocations share out the kTile rows of a tile, 64 / kTile to a row: `row`, and `lane` within it. A lane's channels
// are lane, lane + kLanes, ...
#include "sequences.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kWidth = 64;  // of a head
layout(constant_id = 2) const uint kTile = 16;
layout(constant_id = 3) const bool kCached = false;  // keys are a cache's rows, queries stand at `positions`

const uint kLanes = 64 / kTile;
const uint kEach = (kWidth + kLanes - 1) / kLanes;
const uint kPitch = kWidth + 1;

/// The first key that the query `token` sees; past all keys for padding. `window` 0: none.
int first_seen(Ints bounds, int token, int window) {
  if (token >= real_tokens(bounds)) return 0x7FFFFFFF;
  const int begin = bounds.v[1 + sequence_of(bounds, token)];
  return window == 0 ? begin : max(begin, token - window + 1);
}
