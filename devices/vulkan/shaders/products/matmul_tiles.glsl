// Products in tiles, chunk by chunk of K.
//
// A workgroup of 8 x 8 invocations computes a tile of 8 kRowsEach x 8 kColumnsEach elements; its operands come through
// shared memory, kDepth of K at a time. Those of the next turn are read while the sums of this one are made: the card's
// memory takes hundreds of cycles to answer, and no compiler moves a read across a barrier. For the same reason nothing
// is asked before a read: rows past the last are taken for the last, whose sums nobody stores, and the last turn reads
// its own operands once more. Who asks whether there is a next turn has to move what was read to where it would be
// without, and so to wait for it before this turn's sums. Every element is one sum in rising order of K, whatever the
// tile's shape.
layout(constant_id = 11) const uint kRowsEach = 8;
layout(constant_id = 12) const uint kColumnsEach = 8;
// How many elements of A, of B and of the result are read and written at once: 1, or 4 where that many lie together.
layout(constant_id = 13) const uint kStepA = 1;
layout(constant_id = 14) const uint kStepB = 1;
layout(constant_id = 15) const uint kStepOut = 1;
layout(constant_id = 16) const uint kDepth = 16;

// Fours of a row of a tile, and one more: rows begin in different banks.
const uint kFoursA = 2 * kRowsEach + 1;
const uint kFoursB = 2 * kColumnsEach + 1;
const uint kTileRows = 8 * kRowsEach;
const uint kTileColumns = 8 * kColumnsEach;
const uint kReadsA = kRowsEach * kDepth / (8 * kStepA);  // of an invocation
const uint kReadsB = kColumnsEach * kDepth / (8 * kStepB);
const uint kTogether = 4;              // single elements that are read before the first is needed
shared vec4 tile_a[kDepth * kFoursA];  // [kDepth, kTileRows]
shared vec4 tile_b[kDepth * kFoursB];  // [kDepth, kTileColumns]
float sums[kRowsEach * kColumnsEach];
uvec4 next_a[kReadsA];  // as they lie in memory
uvec4 next_b[kReadsB];
// In bytes behind the beginning of a turn's tile.
uint place_a[kReadsA];
uint place_b[kReadsB];

/// Where in its tile an invocation's i-th read lies: .x along K, .y across. `along`: it goes along K.
uvec2 place_of(uint i, bool along, uint tile, uint step) {
  const uint n = i * 64 + invocation();
  const uint reads = (along ? kDepth : tile) / step;  // of a row of the operand
  const uint inner = n % reads * step;
  return along ? uvec2(inner, n / reads) : uvec2(n / reads, inner);
}
uvec2 place_of_a(uint i) { return place_of(i, !kTransposedA, kTileRows, kStepA); }
uvec2 place_of_b(uint i) { return place_of(i, kTransposedB, kTileColumns, kStepB); }

void find_places_of_a(uint first_m, uint rows) {
  [[unroll]] for (uint i = 0; i < kReadsA && kStepA == 4; ++i) {
    const uvec2 place = place_of_a(i);
    place_a[i] = behind_begin_of_a(first_m, inside(place.y, rows - first_m, kTransposedA ? 4 : 1),
                                   inside(place.x, min(push.sizes[2], kDepth), kTransposedA ? 1 : 4));
  }
}
void find_places_of_b(Turn turn, uint first_n) {
  [[unroll]] for (uint i = 0; i < kReadsB && kStepB == 4; ++i) {
    const uvec2 place = place_of_b(i);
    place_b[i] = behind_begin_of_b(turn, inside(place.x, min(push.sizes[2], kDepth), kTransposedB ? 4 : 1),
                                   inside(place.y, push.sizes[1] - first_n, kTransposedB ? 1 : 4));
  }
}

/// The i-th element where no fours lie together.
uint single_of_a(Turn turn, uint64_t a, uint i, uint first_m, uint rows) {
  const uvec2 place = place_of_a(i);
  const uint m = first_m + inside(place.y, rows - first_m, 1);
  return load_raw(a, kTypeA, 1, place_in_a(m, turn.first_k + inside(place.x, min(turn.end, kDepth), 1))).x;
}
uint single_of_b(Turn turn, uint64_t b, uint i, uint first_n) {
  const uvec2 place = place_of_b(i);
  const uint n = first_n + inside(place.y, push.sizes[1] - first_n, 1);
  return load_raw(b, kTypeB, 1, place_in_b(turn.first_k + inside(place.x, min(turn.end, kDepth), 1), n)).x;
}

void write_a(uint i, uvec4 raw) {
  const uvec2 place = place_of_a(i);
  const vec4 four = widened_raw(kTypeA, kStepA, raw);
  if (kTransposedA && kStepA == 4) {
    tile_a[place.x * kFoursA + place.y / 4] = four;
  } else {
    [[unroll]] for (uint j = 0; j < kStepA; ++j) tile_a[(place.x + j) * kFoursA + place.y / 4][place.y % 4] = four[j];
  }
}
void write_b(uint i, uvec4 raw) {
  const uvec2 place = place_of_b(i);
  const vec4 four = widened_raw(kTypeB, kStepB, raw);
  if (!kTransposedB && kStepB == 4) {
    tile_b[place.x * kFoursB + place.y / 4] = four;
  } else {
    [[unroll]] for (uint j = 0; j < kStepB; ++j) tile_b[(place.x + j) * kFoursB + place.y / 4][place.y % 4] = four[j];
  }
}

/// Reads the next turn's operands, as far as they are read in fours: single elements would take too many registers.
void read_ahead(Turn turn) {
  [[unroll]] for (uint i = 0; i < kReadsA && kStepA == 4; ++i) next_a[i] = four_at(turn.a + place_a[i], kTypeA);
  [[unroll]] for (uint i = 0; i < kReadsB && kStepB == 4; ++i) next_b[i] = four_at(turn.b + place_b[i], kTypeB);
}

void write_tiles(Turn turn, uint64_t a, uint64_t b, uint first_m, uint first_n, uint rows) {
  [[unroll]] for (uint i = 0; i < kReadsA && kStepA == 4; ++i) write_a(i, next_a[i]);
  [[dont_unroll]] for (uint i = 0; i < kReadsA && kStepA == 1; i += kTogether) {
    uint raw[kTogether];
    [[unroll]] for (uint j = 0; j < kTogether; ++j) raw[j] = single_of_a(turn, a, i + j, first_m, rows);
    [[unroll]] for (uint j = 0; j < kTogether; ++j) {
      if (i + j < kReadsA) write_a(i + j, uvec4(raw[j]));
    }
  }
  [[unroll]] for (uint i = 0; i < kReadsB && kStepB == 4; ++i) write_b(i, next_b[i]);
  [[dont_unroll]] for (uint i = 0; i < kReadsB && kStepB == 1; i += kTogether) {
    uint raw[kTogether];
    [[unroll]] for (uint j = 0; j < kTogether; ++j) raw[j] = single_of_b(turn, b, i + j, first_n);
    [[unroll]] for (uint j = 0; j < kTogether; ++j) {
      if (i + j < kReadsB) write_b(i + j, uvec4(raw[j]));
    }
  }
}

/// The tile's row, or column, that is the i-th of invocation `at`, of `each`: fours of them lie together.
uint place_in_tile(uint at, uint each, uint i) { return each < 4 ? at * each + i : i / 4 * 32 + at * 4 + i % 4; }

void multiply_tiles(Turn turn, uint y, uint x) {
  [[dont_unroll]] for (uint k = turn.begin; k < min(turn.end, kDepth); ++k) {
    float a[kRowsEach];
    float b[kColumnsEach];
    // No compiler sees by itself that fours of the place above lie together.
    [[unroll]] for (uint i = 0; i < kRowsEach; i += 4) {
      const vec4 four = tile_a[k * kFoursA + (kRowsEach < 4 ? y * kRowsEach / 4 : 2 * i + y)];
      [[unroll]] for (uint j = 0; j < 4 && j < kRowsEach; ++j) a[i + j] =
          four[kRowsEach < 4 ? y * kRowsEach % 4 + j : j];
    }
    [[unroll]] for (uint i = 0; i < kColumnsEach; i += 4) {
      const vec4 four = tile_b[k * kFoursB + (kColumnsEach < 4 ? x * kColumnsEach / 4 : 2 * i + x)];
      [[unroll]] for (uint j = 0; j < 4 && j < kColumnsEach; ++j) {
        b[i + j] = four[kColumnsEach < 4 ? x * kColumnsEach % 4 + j : j];
      }
    }
    [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
      [[unroll]] for (uint j = 0; j < kColumnsEach; ++j) sums[i * kColumnsEach + j] += a[i] * b[j];
    }
  }
}

/// Sums are zeros again then.
void store_sums(Results results, uint first_m, uint first_n, uint y, uint x, uint rows) {
  [[unroll]] for (uint i = 0; i < kRowsEach; ++i) {
    const uint m = first_m + place_in_tile(y, kRowsEach, i);
    [[unroll]] for (uint j = 0; j < kColumnsEach; j += kStepOut) {
      const uint n = first_n + place_in_tile(x, kColumnsEach, j);
      if (kStepOut == 4) {
        vec4 four;
        [[unroll]] for (uint k = 0; k < 4; ++k) four[k] = sums[i * kColumnsEach + j + k];
        put_four(results, m, n, rows, four);
      } else {
        put(results, m, n, rows, sums[i * kColumnsEach + j]);
      }
    }
  }
  [[unroll]] for (uint i = 0; i < kRowsEach * kColumnsEach; ++i) sums[i] = 0.0;
}

/// Adds to the sums what `begin` and the chunk behind it of K give, whole turns but where `depth` ends it.
void multiply_chunk(uint64_t a, uint64_t b, uint first_m, uint first_n, uint y, uint x, uint rows, uint begin,
                    uint depth) {
  const uint last_k = begin + (min(depth - begin, push.sizes[6]) - 1) / kDepth * kDepth;
  const Turn first = turn_at(a, b, first_m, first_n, begin, depth, kDepth);
  find_places_of_a(first_m, rows);
  find_places_of_b(first, first_n);
  read_ahead(first);
  for (uint k = begin; k <= last_k; k += kDepth) {
    const Turn turn = turn_at(a, b, first_m, first_n, k, depth, kDepth);
    write_tiles(turn, a, b, first_m, first_n, rows);
    barrier();
    const Turn next = turn_at(a, b, first_m, first_n, min(k + kDepth, last_k), depth, kDepth);
    if (kListed == 3) find_places_of_b(next, first_n);
    read_ahead(next);
    multiply_tiles(turn, y, x);
    barrier();
  }
}
