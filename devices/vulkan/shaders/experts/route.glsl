// What routing and its gradient share: kLanes invocations, a power of two, take a token, each some of its experts. The
// includer says how many invocations a workgroup has, kThreads.
layout(local_size_x = kThreads) in;
layout(constant_id = 0) const uint kType = 0;  // of logits
layout(constant_id = 1) const uint kLanes = kThreads;
layout(constant_id = 2) const bool kNormalised = false;
layout(constant_id = 3) const uint kEach = 1;  // experts of an invocation
layout(constant_id = 4) const bool kSigmoid = false;
layout(constant_id = 5) const bool kHasBias = false;
layout(constant_id = 6) const uint kGroups = 1;
layout(constant_id = 7) const uint kChosenGroups = 1;

#define RONDO_LANES kLanes
#include "reduce.glsl"

uint token_here() { return group_place() * (kThreads / kLanes) + invocation() / kLanes; }
/// The invocation's i-th expert.
uint expert_here(uint i) { return i * kLanes + invocation() % kLanes; }
