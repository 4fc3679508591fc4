// Every op of tests/ops at the sizes of one layer of a 135-million-parameter model, in fp32 and bf16.
#include "bench_support.h"

namespace rondo::devices::testing {
namespace {

const int registered_ops = [] {
  for (const OpDescription& description : op_descriptions()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      // The shapes are of no account to the list's length: the small case tells which ops there are.
      const OpList list = description.make(storage, Scale::kOdd).list;
      for (std::size_t place = 0; place < list.ops.size(); ++place) {
        const std::string name = std::string("Op/") + description.name + "/" + name_of(list.ops[place].kind) + "/" +
                                 std::to_string(place) + "/" + name_of(storage);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&description, storage, place](benchmark::State& state) {
                                       time_op(state, description.make(storage, Scale::kModel), place);
                                     })
            ->MeasureProcessCPUTime()
            ->UseRealTime();
      }
    }
  }
  return 0;
}();

}  // namespace
}  // namespace rondo::devices::testing
