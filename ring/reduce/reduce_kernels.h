// The loops of the kernels, included by one source file per instruction set. They have no branches and no aliasing, so
// compilers vectorize them; they are not inlined, so each is compiled once. Sums of the usual gradients stay in vector
// registers instead (simd.h). The bits of the result do not depend on the width of vectors or the order of blocks,
// because different elements are never combined.
//
// Everything has internal linkage and the loops use nothing of the standard library, so that the linker cannot replace
// the code for one instruction set by that for another.
#pragma once

#include "horo/base/check.h"
#include "ring/reduce/blocks.h"
#include "ring/reduce/dispatch.h"
#include "ring/reduce/few.h"
#include "ring/reduce/kernels.h"
#include "ring/reduce/simd.h"

namespace horo {
namespace {

template <class Element>
inline constexpr bool kPartialsAreAlike = std::is_same_v<typename Element::Stored, typename Element::Accumulator>;

template <class Element>
[[gnu::noinline]] void load(typename Element::Accumulator* __restrict to, const std::byte* __restrict in,
                            std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Element::load(stored_at<Element>(in, i));
}

template <class Element>
[[gnu::noinline]] void load_scaled(typename Element::Accumulator* __restrict to, const std::byte* __restrict in,
                                   std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Element::scaled(Element::load(stored_at<Element>(in, i)), factor);
}

template <class Element>
void load_block(std::byte* to, const std::byte* in, std::size_t count, double factor) {
  auto* const accumulators = reinterpret_cast<typename Element::Accumulator*>(to);
  if (factor != 1.0) {
    load_scaled<Element>(accumulators, in, count, factor);
  } else if constexpr (kPartialsAreAlike<Element>) {
    std::memcpy(to, in, count * sizeof(typename Element::Stored));
  } else {
    load<Element>(accumulators, in, count);
  }
}

template <class Op, class T>
[[gnu::noinline]] void join(T* __restrict a, const std::byte* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, b + i * sizeof(value), sizeof(value));
    a[i] = Op::template apply<T>(a[i], value);
  }
}

template <class Op, class T>
void join_block(std::byte* to, const std::byte* accumulators, std::size_t count) {
  join<Op>(reinterpret_cast<T*>(to), accumulators, count);
}

template <class Element, class Op>
[[gnu::noinline]] void join_input(typename Element::Accumulator* __restrict a, const std::byte* __restrict in,
                                  std::size_t count) {
  using T = typename Element::Accumulator;
  for (std::size_t i = 0; i < count; ++i) a[i] = Op::template apply<T>(a[i], Element::load(stored_at<Element>(in, i)));
}

template <class Element, class Op>
void join_input_block(std::byte* to, const std::byte* in, std::size_t count) {
  join_input<Element, Op>(reinterpret_cast<typename Element::Accumulator*>(to), in, count);
}

template <class Element>
void put(std::byte* out, std::size_t i, typename Element::Accumulator value) {
  const typename Element::Stored stored = Element::store(value);
  std::memcpy(out + i * sizeof(stored), &stored, sizeof(stored));
}

template <class Element>
[[gnu::noinline]] void store(const typename Element::Accumulator* __restrict from, std::byte* __restrict out,
                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) put<Element>(out, i, from[i]);
}

template <class Element>
[[gnu::noinline]] void store_finished(const typename Element::Accumulator* __restrict from, std::byte* __restrict out,
                                      std::size_t count, double divisor, double postscale) {
  for (std::size_t i = 0; i < count; ++i) put<Element>(out, i, Element::finished(from[i], divisor, postscale));
}

template <class Element>
void store_block(const std::byte* from, std::byte* out, std::size_t count, const Scaling& scaling) {
  const auto* const accumulators = reinterpret_cast<const typename Element::Accumulator*>(from);
  if (scaling.divisor == 1.0 && scaling.postscale == 1.0) return store<Element>(accumulators, out, count);
  store_finished<Element>(accumulators, out, count, scaling.divisor, scaling.postscale);
}

// The sums of an element type in vector registers.
template <class Element, std::size_t kBytes>
struct RegisterSums {
  using T = typename Element::Accumulator;
  using L = SimdVector<Element, kBytes>;
  static constexpr std::size_t kInBytes = sizeof(typename Element::Stored);

  // The function that sums a regular tree as a whole. Null if the tree is not regular.
  static TreeRun run_of(const TreeJob& job) {
    if (!is_regular_and_plain(job, kPartialsAreAlike<Element>)) return nullptr;
    if (job.to_partial && !kPartialsAreAlike<Element>) return nullptr;
    const bool scaled = !job.to_partial && (job.scaling.divisor != 1.0 || job.scaling.postscale != 1.0);
    if (scaled && !L::kScales) return nullptr;
    TreeRun run = nullptr;
    with_inputs(job.regular, [&](auto inputs) {
      if (job.out_count == 1) {
        run = run_of<inputs, 1>(scaled);
      } else if (job.out_count == 2) {
        run = run_of<inputs, 2>(scaled);
      } else if (job.out_count == static_cast<std::size_t>(inputs)) {
        run = run_of<inputs, inputs>(scaled);
      }
    });
    return run;
  }

  // The accumulators of a regular tree: BlockLoops::sum.
  static void push(std::byte* to, const std::byte* const* in, int inputs, std::size_t count) {
    with_inputs(inputs, [&](auto number) {
      sum_in_registers<L, number, 1, kInBytes, sizeof(T)>(
          in, &to, count, [](std::byte* place, const typename L::Value& value) { put_vector(place, value); });
    });
  }

 private:
  template <int kInputs, int kOuts>
  static TreeRun run_of(bool scaled) {
    return scaled ? sum<kInputs, kOuts, L::kScales> : sum<kInputs, kOuts, false>;
  }

  template <int kInputs, int kOuts, bool kScaled>
  static void sum(const TreeJob& job) {
    const std::byte* from[kInputs];
    for (int k = 0; k < kInputs; ++k) from[k] = job.inputs[k].data;
    const auto put = [scaling = job.scaling](std::byte* to, const typename L::Value& value) {
      if constexpr (kScaled) {
        L::store(to, L::finished(value, scaling));
      } else {
        static_cast<void>(scaling);  // clang warns about unused captures
        L::store(to, value);
      }
    };
    sum_in_registers<L, kInputs, kOuts, kInBytes, kInBytes>(from, job.outs, job.count, put);
  }
};

template <class Element, class Op, std::size_t kBytes>
inline constexpr bool kHasVector = std::is_same_v<Op, Sum>&& SimdVector<Element, kBytes>::kWidth > 0;

template <class Element, class Op, std::size_t kBytes>
constexpr BlockLoops loops_of() {
  using T = typename Alike<Op, typename Element::Accumulator>::Type;
  BlockLoops loops{};
  loops.stored_bytes = sizeof(typename Element::Stored);
  loops.accumulator_bytes = sizeof(T);
  loops.alike = kPartialsAreAlike<Element>;
  loops.load = load_block<Element>;
  loops.join = loops.join_input = join_block<Op, T>;
  if constexpr (!kPartialsAreAlike<Element>) loops.join_input = join_input_block<Element, Op>;
  loops.store = store_block<Element>;
  if constexpr (kHasVector<Element, Op, kBytes>) {
    loops.sum = RegisterSums<typename Alike<Op, Element>::Type, kBytes>::push;
  }
  return loops;
}

template <class Element, class Op, std::size_t kBytes>
void run_in_blocks(const TreeJob& job) {
  static constexpr BlockLoops kLoops = loops_of<Element, Op, kBytes>();
  run_blocks(kLoops, job);
}

template <class Element, class Op, std::size_t kBytes>
TreeRun run_for(const TreeJob& job) {
  if constexpr (kHasVector<Element, Op, kBytes>) {
    if (const TreeRun sum = RegisterSums<typename Alike<Op, Element>::Type, kBytes>::run_of(job)) return sum;
  }
  return run_in_blocks<Element, Op, kBytes>;
}

// kBytes: size of a vector register; 0: no vectors.
template <std::size_t kBytes>
TreeRun tree_run(DType dtype, ReduceOp op, const TreeJob& job) {
  if (const TreeRun few = run_of_few(dtype, op, job)) return few;
  TreeRun run = nullptr;
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    with_op(op, [&](auto operation) {
      using Op = decltype(operation);
      if constexpr (kApplies<Op, typename Element::Accumulator>) run = run_for<Element, Op, kBytes>(job);
    });
  });
  HORO_CHECK(run != nullptr);
  return run;
}

}  // namespace
}  // namespace horo
