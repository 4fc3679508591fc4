// Tensors of experts, and which rows of others are theirs: they lie one expert's behind the other's.
//
// slots[8]: offsets [experts + 1]. slots[9]: for each expert where the tensor that has his stands in the run's table,
// and pairs of bytes before it there.

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Offsets { int v[]; };

/// Behind the last expert's: where rows of padding begin.
uint first_row_of(uint expert) { return uint(Offsets(address(8)).v[expert]); }
uint64_t tensor_of(uint expert) {
  Uints places = Uints(address(9));
  return Words(push.table).v[places.v[2 * expert]] + uint64_t(places.v[2 * expert + 1]) * 2;
}
