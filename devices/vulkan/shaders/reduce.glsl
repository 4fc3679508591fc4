// Sums and maxima over a workgroup of kThreads invocations, by halves: the order is the same on every card.
// RONDO_ONE_SUBGROUP: the workgroup is one subgroup, whose invocations read one another's values. RONDO_LANES: each
// such number of invocations, a power of two, by themselves.
#ifdef RONDO_ONE_SUBGROUP
float sum_over_group(float value) {
  [[unroll]] for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {
    value += subgroupShuffle(value, gl_SubgroupInvocationID ^ half_of);
  }
  return value;
}
#define RONDO_OVER_GROUP(name, type, of_two)                                            \
  type name(type value) {                                                               \
    [[unroll]] for (uint half_of = kThreads / 2; half_of > 0; half_of /= 2) {           \
      value = of_two(value, subgroupShuffle(value, gl_SubgroupInvocationID ^ half_of)); \
    }                                                                                   \
    return value;                                                                       \
  }
RONDO_OVER_GROUP(maximum_over_group, float, max)
RONDO_OVER_GROUP(maximum_over_group, uint, max)
RONDO_OVER_GROUP(minimum_over_group, int, min)
#else
#ifdef RONDO_LANES
#define RONDO_LANE(i) ((i) % RONDO_LANES)
#else
#define RONDO_LANES kThreads
#define RONDO_LANE(i) (i)
#endif
shared float reduce_values[kThreads];

float sum_over_group(float value) {
  const uint i = invocation();
  reduce_values[i] = value;
  barrier();
  for (uint half_of = RONDO_LANES / 2; half_of > 0; half_of /= 2) {
    if (RONDO_LANE(i) < half_of) reduce_values[i] += reduce_values[i + half_of];
    barrier();
  }
  const float sum = reduce_values[i - RONDO_LANE(i)];
  barrier();
  return sum;
}

float maximum_over_group(float value) {
  const uint i = invocation();
  reduce_values[i] = value;
  barrier();
  for (uint half_of = RONDO_LANES / 2; half_of > 0; half_of /= 2) {
    if (RONDO_LANE(i) < half_of) reduce_values[i] = max(reduce_values[i], reduce_values[i + half_of]);
    barrier();
  }
  const float maximum = reduce_values[i - RONDO_LANE(i)];
  barrier();
  return maximum;
}
#endif
