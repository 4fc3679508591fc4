// What routing and its gradient share: kLanes invocations, a power of two, take a token, each some of its experts.
const uint kThreads = 64;
const uint kMostExperts = 256;
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;  // of logits
layout(constant_id = 1) const uint kLanes = kThreads;
layout(constant_id = 2) const bool kNormalised = false;
layout(constant_id = 3) const uint kEach = 1;  // experts of an invocation

shared float lane_values[kThreads];

/// Over a token's lanes, by halves: the order is the same on every card.
float sum_over_lanes(float value) {
  const uint i = invocation();
  lane_values[i] = value;
  barrier();
  for (uint half_of = kLanes / 2; half_of > 0; half_of /= 2) {
    if (i % kLanes < half_of) lane_values[i] += lane_values[i + half_of];
    barrier();
  }
  const float sum = lane_values[i - i % kLanes];
  barrier();
  return sum;
}
float maximum_over_lanes(float value) {
  const uint i = invocation();
  lane_values[i] = value;
  barrier();
  for (uint half_of = kLanes / 2; half_of > 0; half_of /= 2) {
    if (i % kLanes < half_of) lane_values[i] = max(lane_values[i], lane_values[i + half_of]);
    barrier();
  }
  const float maximum = lane_values[i - i % kLanes];
  barrier();
  return maximum;
}

uint token_here() { return group_place() * (kThreads / kLanes) + invocation() / kLanes; }
/// The invocation's i-th expert.
uint expert_here(uint i) { return i * kLanes + invocation() % kLanes; }
