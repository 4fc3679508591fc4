// Which part of the products of experts is a workgroup's: a tile of one expert's rows, behind which come those of
// padding; or a tile of one expert's result, whose inner extent is its rows. Nobody knows how many rows an expert has
// before they are here: there are tiles enough for whatever that is, and those that are not needed leave.
//
// sizes[7]: experts, who have no list; slots: experts.glsl.
#include "experts.glsl"
const uint kGroupsRows = 1;
const uint kGroupsDepth = 2;

/// Where the rows of an expert, or behind the last of padding, begin.
uint begin_of(uint expert) {
  const uint first = first_row_of(min(expert, push.sizes[7]));
  return expert > push.sizes[7] ? push.sizes[0] : first;
}

/// How many tiles lie before those of an expert: the whole ones in the rows before its own, and one for each expert
/// there, of whom no more than there are rows have any. So each has as many as it needs, or one more, which begins
/// behind its rows.
uint first_tile_of(uint expert, uint tile_rows) {
  const uint first = begin_of(expert);
  return first / tile_rows + min(expert, first);
}

/// Rows from first_m up to `rows`, inner elements from `begin` up to `depth`: of padding none.
struct Part {
  uint expert;
  uint first_m, rows;
  uint begin, depth;
};
Part find_part(uint grouped, uint tile_rows) {
  if (grouped == kGroupsDepth) {
    const uint expert = workgroup().z;
    return Part(expert, workgroup().y * tile_rows, push.sizes[0], first_row_of(expert), first_row_of(expert + 1));
  }
  // All invocations ask the same, so that a scalar unit can keep the answer.
  const uint tile = workgroup().y;
  uint expert = 0;
  for (uint end = push.sizes[7] + 1; end - expert > 1;) {
    const uint middle = (expert + end) / 2;
    if (first_tile_of(middle, tile_rows) <= tile) {
      expert = middle;
    } else {
      end = middle;
    }
  }
  const uint first = begin_of(expert) + (tile - first_tile_of(expert, tile_rows)) * tile_rows;
  return Part(expert, first, begin_of(expert + 1), 0, expert == push.sizes[7] ? 0 : push.sizes[2]);
}
bool is_empty(Part part) { return part.first_m >= part.rows || part.begin >= part.depth; }

void store_zeros(Part part, uint first_n, uint tile_rows, uint tile_columns) {
  const uint64_t to = address(2);
  const uint end = min(part.first_m + tile_rows, part.rows);
  for (uint i = invocation(); part.first_m + i / tile_columns < end; i += gl_WorkGroupSize.x) {
    const uint n = first_n + i % tile_columns;
    if (n < push.sizes[1]) store(to, kTypeOut, (part.first_m + i / tile_columns) * push.sizes[5] + n, 0.0);
  }
}
