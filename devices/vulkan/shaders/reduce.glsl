// Sums and maxima over a workgroup of kThreads invocations, by halves: the order is the same on every card.
// RONDO_ONE_SUBGROUP: the workgroup is one subgroup, whose invocations read one another's values.
#ifdef RONDO_ONE_SUBGROUP
float sum_over_group(float value) {
  [[unroll]] for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {
    value += subgroupShuffle(value, gl_SubgroupInvocationID ^ half_of);
  }
  return value;
}
#else
shared float reduce_values[kThreads];

float sum_over_group(float value) {
  const uint i = invocation();
  reduce_values[i] = value;
  barrier();
  for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {
    if (i < half_of) reduce_values[i] += reduce_values[i + half_of];
    barrier();
  }
  const float sum = reduce_values[0];
  barrier();
  return sum;
}

float maximum_over_group(float value) {
  const uint i = invocation();
  reduce_values[i] = value;
  barrier();
  for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {
    if (i < half_of) reduce_values[i] = max(reduce_values[i], reduce_values[i + half_of]);
    barrier();
  }
  const float maximum = reduce_values[0];
  barrier();
  return maximum;
}
#endif
