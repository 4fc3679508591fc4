// Tensors of experts, and which rows of others are theirs: they lie one expert's behind the other's.
//
// slots[8]: offsets [experts + 1]. slots[9]: where the experts' tensors stand in the run's table.

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer Offsets { int v[]; };

/// Behind the last expert's: where rows of padding begin.
uint first_row_of(uint expert) { return uint(Offsets(address(8)).v[expert]); }
uint64_t tensor_of(uint expert) { return Words(push.table).v[Uints(address(9)).v[expert]]; }
