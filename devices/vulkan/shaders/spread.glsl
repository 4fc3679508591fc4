// Elements by steps, of tensors of one storage. Rows of tokens may lie where experts have them: row t k + j of a list
// names the row of token t's j-th choice.
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kStep = 1;  // elements of a step; 4: the width is a multiple of four

vec4 load_step(uint64_t tensor, uint dtype, uint i) {
  return widened_raw(dtype, kStep, load_raw(tensor, dtype, kStep, i));
}
vec4 load_step(uint64_t tensor, uint i) { return load_step(tensor, kType, i); }
void store_step(uint64_t tensor, uint dtype, uint i, vec4 value) {
  if (kStep == 4) {
    store_raw(tensor, dtype, i, value);
  } else {
    store(tensor, dtype, i, value.x);
  }
}
void store_step(uint64_t tensor, uint i, vec4 value) { store_step(tensor, kType, i, value); }
