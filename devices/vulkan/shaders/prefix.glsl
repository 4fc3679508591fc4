// Sums of whole numbers over the invocations of a workgroup, kThreads of them, that come before one.
shared uint prefix_values[kThreads];

/// Of the values of those before this one, and of all.
uint sum_before(uint value, out uint all) {
  const uint i = invocation();
  prefix_values[i] = value;
  barrier();
  for (uint step = 1; step < kThreads; step *= 2) {
    const uint other = prefix_values[max(i, step) - step];
    barrier();
    if (i >= step) prefix_values[i] += other;
    barrier();
  }
  const uint before = prefix_values[i] - value;
  all = prefix_values[kThreads - 1];
  barrier();
  return before;
}
