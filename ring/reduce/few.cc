// Compiled without vectors, for all instruction sets at once. A caller has usually just written such a tensor word by
// word. A load of a whole register has to wait until all these stores have reached the cache; loads of single words do
// not.

#include "ring/reduce/few.h"

#include "ring/reduce/blocks.h"
#include "ring/reduce/dispatch.h"

namespace horo {
namespace {

constexpr std::size_t kFew = 6;

// Reduces the values in the regular tree over kInputs contributors.
template <class Op, int kInputs, class T>
T tree_of_values(const T* values) {
  if constexpr (kInputs == 1) {
    return values[0];
  } else {
    constexpr int kLeft = std::bit_floor(static_cast<unsigned>(kInputs - 1));
    return Op::template apply<T>(tree_of_values<Op, kLeft>(values),
                                 tree_of_values<Op, kInputs - kLeft>(values + kLeft));
  }
}

template <class Element, class Op, int kInputs, bool kScaled>
void reduce_few(const TreeJob& job) {
  using Stored = typename Element::Stored;
  for (std::size_t i = 0; i < job.count; ++i) {
    typename Element::Accumulator values[kInputs];
    for (int k = 0; k < kInputs; ++k) values[k] = Element::load(stored_at<Element>(job.inputs[k].data, i));
    auto result = tree_of_values<Op, kInputs>(values);
    if constexpr (kScaled) result = Element::finished(result, job.scaling.divisor, job.scaling.postscale);
    const Stored out = Element::store(result);
    std::memcpy(job.outs[0] + i * sizeof(Stored), &out, sizeof(Stored));
  }
}

template <class Element, class Op>
TreeRun run_of(int regular, bool scaled) {
  TreeRun run = nullptr;
  with_inputs(regular, [&](auto inputs) {
    if (scaled) {
      run = reduce_few<Element, Op, inputs, true>;
    } else {
      run = reduce_few<typename Alike<Op, Element>::Type, Op, inputs, false>;
    }
  });
  return run;
}

}  // namespace

TreeRun run_of_few(DType dtype, ReduceOp op, const TreeJob& job) {
  if (job.count > kFew || job.out_count > 1 || job.to_partial) return nullptr;
  if (!is_regular_and_plain(job, accumulator_of(dtype) == dtype && dtype != DType::kBool)) return nullptr;
  const bool scaled = job.scaling.divisor != 1.0 || job.scaling.postscale != 1.0;
  TreeRun run = nullptr;
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    with_op(op, [&](auto operation) {
      using Op = decltype(operation);
      if constexpr (kApplies<Op, typename Element::Accumulator>) run = run_of<Element, Op>(job.regular, scaled);
    });
  });
  return run;
}

}  // namespace horo
