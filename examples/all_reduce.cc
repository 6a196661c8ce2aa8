// The C++ API in thirty lines: every rank contributes a vector and gets the average.
//
//   tools/setup && cmake --preset release && cmake --build --preset release --target all_reduce
//   horo run -n 4 build/release/examples/all_reduce
#include <cstdio>
#include <vector>

#include "horo/horo.h"

int main() {
  try {
    horo::Session session(horo::config_from_environment());
    const horo::Topology& me = session.topology();

    horo::TensorSpec gradient;
    gradient.name = "gradient";
    gradient.op = horo::ReduceOp::kAverage;
    gradient.shape = {1'000'000};
    const horo::Key key = session.declare(gradient);  // once; later submits need only the key

    const std::vector<float> in(gradient.elements(), static_cast<float>(me.rank));
    std::vector<float> out(in.size());
    const auto work = session.submit({.key = key, .in = in.data(), .out = out.data()});  // returns at once
    session.wait({&work, 1}, horo::TimePoint::max());
    work->outcome();  // throws the error if the operation failed

    std::printf("rank %d of %d: the average is %g\n", me.rank, me.size, static_cast<double>(out.front()));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "all_reduce: %s\n", error.what());
    return 1;
  }
}
