// Rows of tokens that lie where experts have them: row t k + j of a list names the row of token t's j-th choice.
layout(constant_id = 0) const uint kType = 0;
layout(constant_id = 1) const uint kStep = 1;  // elements of a step; 4: the width is a multiple of four

vec4 load_step(uint64_t tensor, uint i) { return widened_raw(kType, kStep, load_raw(tensor, kType, kStep, i)); }
void store_step(uint64_t tensor, uint i, vec4 value) {
  if (kStep == 4) {
    store_raw(tensor, kType, i, value);
  } else {
    store(tensor, kType, i, value.x);
  }
}
