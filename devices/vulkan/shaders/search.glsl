// Where a number lies in a list of rising ones.

/// The last of `count` numbers, from place `first` on, that is at most `value`, as the first one is.
int last_at_most(Ints list, int first, int count, int value) {
  int low = 0;
  int high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list.v[first + middle] <= value) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}
