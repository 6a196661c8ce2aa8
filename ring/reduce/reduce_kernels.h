// The loops of the kernels, included by one source file per instruction set. Inputs are processed in blocks that fit
// into the first-level cache: the canonical tree runs as a program on a small stack of accumulator blocks, so every
// input is read once and the output is written once, for any number of ranks. The loops have no branches and no
// aliasing, so compilers vectorize them. Sums of the usual gradients stay in vector registers instead (simd.h). The
// bits of the result do not depend on the width of vectors or the order of blocks, because different elements are never
// combined.
//
// Everything has internal linkage and the loops use nothing of the standard library, so that the linker cannot replace
// the code for one instruction set by that for another.
#pragma once

#include "horo/base/check.h"
#include "ring/reduce/element.h"
#include "ring/reduce/kernels.h"
#include "ring/reduce/simd.h"

namespace horo {
namespace {

template <class Element>
typename Element::Stored stored_at(const std::byte* data, std::size_t i) {
  typename Element::Stored value;
  std::memcpy(&value, data + i * sizeof(value), sizeof(value));
  return value;
}

template <class Element>
void load(typename Element::Accumulator* __restrict to, const std::byte* __restrict in, std::size_t count,
          double factor) {
  if (factor == 1.0) {
    for (std::size_t i = 0; i < count; ++i) to[i] = Element::load(stored_at<Element>(in, i));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = Element::scaled(Element::load(stored_at<Element>(in, i)), factor);
  }
}

template <class Op, class T>
void join(T* __restrict a, const T* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] = Op::template apply<T>(a[i], b[i]);
}

template <class Element, class Op>
void join_input(typename Element::Accumulator* __restrict a, const std::byte* __restrict in, std::size_t count) {
  using T = typename Element::Accumulator;
  for (std::size_t i = 0; i < count; ++i) a[i] = Op::template apply<T>(a[i], Element::load(stored_at<Element>(in, i)));
}

template <class Element>
void store(const typename Element::Accumulator* __restrict from, std::byte* __restrict out, std::size_t count,
           const Scaling& scaling) {
  using Stored = typename Element::Stored;
  const auto put = [out](std::size_t i, Stored value) { std::memcpy(out + i * sizeof(value), &value, sizeof(value)); };
  if (scaling.divisor == 1.0 && scaling.postscale == 1.0) {
    for (std::size_t i = 0; i < count; ++i) put(i, Element::store(from[i]));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      put(i, Element::store(Element::finished(from[i], scaling.divisor, scaling.postscale)));
    }
  }
}

// Calls f with a value of the element type.
template <class F>
void with_element(DType dtype, F f) {
  switch (dtype) {
    case DType::kUint8:
      return f(IntElement<std::uint8_t>{});
    case DType::kInt8:
      return f(IntElement<std::int8_t>{});
    case DType::kUint16:
      return f(IntElement<std::uint16_t>{});
    case DType::kInt16:
      return f(IntElement<std::int16_t>{});
    case DType::kUint32:
      return f(IntElement<std::uint32_t>{});
    case DType::kInt32:
      return f(IntElement<std::int32_t>{});
    case DType::kUint64:
      return f(IntElement<std::uint64_t>{});
    case DType::kInt64:
      return f(IntElement<std::int64_t>{});
    case DType::kFloat16:
      return f(Float16Element{});
    case DType::kFloat32:
      return f(FloatElement<float>{});
    case DType::kFloat64:
      return f(FloatElement<double>{});
    case DType::kBool:
      return f(BoolElement{});
    case DType::kBFloat16:
      return f(BFloat16Element{});
    case DType::kFloat8E4m3:
      return f(Float8E4m3Element{});
    case DType::kFloat8E5m2:
      return f(Float8E5m2Element{});
    case DType::kComplex64:
      return f(ComplexElement<float>{});
    case DType::kComplex128:
      return f(ComplexElement<double>{});
  }
  HORO_CHECK(!"a known element type");
}

template <class F>
void with_op(ReduceOp op, F f) {
  switch (op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return f(Sum{});
    case ReduceOp::kMin:
      return f(Min{});
    case ReduceOp::kMax:
      return f(Max{});
    case ReduceOp::kProduct:
      return f(Product{});
    case ReduceOp::kBitAnd:
      return f(BitAnd{});
    case ReduceOp::kBitOr:
      return f(BitOr{});
    case ReduceOp::kBitXor:
      return f(BitXor{});
    case ReduceOp::kAdasum:
    case ReduceOp::kCustom:
      break;
  }
  HORO_CHECK(!"a known operation");
}

// Partial results are stored in the accumulator type.
template <class T>
struct PartialElement {
  using Stored = T;
  using Accumulator = T;
  static T load(T stored) { return stored; }
  static T store(T value) { return value; }
  static T scaled(T value, double /*factor*/) { return value; }
  static T finished(T value, double /*divisor*/, double /*postscale*/) { return value; }
};

// Calls f with the number of inputs, which is that of a regular tree, as a std::integral_constant.
template <class F>
void with_inputs(int inputs, F f) {
  if (inputs == 2) return f(std::integral_constant<int, 2>{});
  if (inputs == 3) return f(std::integral_constant<int, 3>{});
  if (inputs == 4) return f(std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 8>{});
}

template <class Element, class Op, std::size_t kBytes>
class TreeRunner {
 public:
  using T = typename Element::Accumulator;
  using Partial = PartialElement<T>;
  using L = SimdVector<Element, kBytes>;
  static constexpr bool kHasVector = std::is_same_v<Op, Sum> && L::kWidth > 0;

  explicit TreeRunner(const TreeJob& job)
      : job_(job), stack_(reinterpret_cast<T*>(job.stack)), scales_(job.scaling.prescale != 1.0) {}

  // The function that sums a few elements of a regular tree one by one. Null if there are more elements, or if the tree
  // is not regular.
  //
  // A caller has usually just written such a tensor word by word. A load of a whole register has to wait until all
  // these stores have reached the cache; loads of single words do not.
  TreeRun run_of_few() const {
    constexpr std::size_t kFew = 6;
    if (job_.count > kFew || job_.out_count > 1 || job_.to_partial || !is_regular()) return nullptr;
    const bool is_finished = job_.scaling.divisor == 1.0 && job_.scaling.postscale == 1.0;
    TreeRun run = nullptr;
    with_inputs(job_.regular, [&](auto inputs) { run = is_finished ? sum_few<inputs, false> : sum_few<inputs, true>; });
    return run;
  }

  // Runs the whole tree in registers. Returns false, without an effect, if that is not possible.
  bool run_in_registers() const {
    if (!is_regular() || (job_.to_partial && !kPartialsAreAlike)) return false;
    const bool is_finished = job_.to_partial || (job_.scaling.divisor == 1.0 && job_.scaling.postscale == 1.0);
    if constexpr (kHasVector) {
      if (!L::kScales && !is_finished) return false;
      if (job_.out_count > 2 && job_.out_count != static_cast<std::size_t>(job_.regular)) return false;
      with_inputs(job_.regular, [&](auto inputs) { is_finished ? sum<inputs, false>() : sum<inputs, true>(); });
    }
    return kHasVector;
  }

  // The sum of elements [begin, begin + count), count <= kKernelBlock.
  const T* run(std::size_t begin, std::size_t count) {
    std::size_t used = 0;
    const auto top = [&] { return stack_ + (used - 1) * kKernelBlock; };
    for (std::size_t at = 0; at < job_.steps; ++at) {
      if (job_.tree[at].input == TreeStep::kJoin) {
        --used;
        join<Op>(top(), top() + kKernelBlock, count);
      } else if (joins(at + 1)) {
        fold(top(), input(at), begin, count);
        ++at;
      } else if (const RegularTree* regular = regular_at(at)) {
        ++used;
        push_sum(top(), *regular, at, begin, count);
        at += steps_of(*regular) - 1;
      } else {
        ++used;
        push(top(), input(at), begin, count);
      }
    }
    return stack_;
  }

 private:
  static constexpr std::size_t kInBytes = sizeof(typename Element::Stored);
  static constexpr bool kPartialsAreAlike = std::is_same_v<typename Element::Stored, T>;

  bool joins(std::size_t at) const { return at < job_.steps && job_.tree[at].input == TreeStep::kJoin; }
  const TreeInput& input(std::size_t at) const { return job_.inputs[job_.tree[at].input]; }
  bool is_plain(const TreeInput& input) const { return input.partial ? kPartialsAreAlike : !scales_; }

  static std::size_t steps_of(const RegularTree& regular) { return static_cast<std::size_t>(2 * regular.inputs - 1); }

  // The largest regular tree that begins at this step of the program; null if there is none, or if the type has no
  // vector form.
  const RegularTree* regular_at(std::size_t at) const {
    if constexpr (kHasVector) {
      for (const RegularTree& regular : kRegularTrees) {
        if (fits(regular, at)) return &regular;
      }
    }
    return nullptr;
  }

  bool fits(const RegularTree& regular, std::size_t at) const {
    const std::size_t steps = steps_of(regular);
    if (at + steps > job_.steps) return false;
    for (std::size_t i = 0; i < steps; ++i) {
      if (joins(at + i) != (regular.program[i] == 'j')) return false;
      if (!joins(at + i) && !is_plain(input(at + i))) return false;
    }
    return true;
  }

  bool is_regular() const {
    for (int k = 0; k < job_.regular; ++k) {
      if (!is_plain(job_.inputs[k])) return false;
    }
    return job_.regular > 0;
  }

  // Sums the values in the regular tree over kInputs contributors.
  template <int kInputs>
  static T sum_of_values(const T* values) {
    if constexpr (kInputs == 1) {
      return values[0];
    } else {
      constexpr int kLeft = std::bit_floor(static_cast<unsigned>(kInputs - 1));
      return Op::template apply<T>(sum_of_values<kLeft>(values), sum_of_values<kInputs - kLeft>(values + kLeft));
    }
  }

  template <int kInputs, bool kScaled>
  static void sum_few(const TreeJob& job) {
    for (std::size_t i = 0; i < job.count; ++i) {
      T values[kInputs];
      for (int k = 0; k < kInputs; ++k) values[k] = Element::load(stored_at<Element>(job.inputs[k].data, i));
      T sum = sum_of_values<kInputs>(values);
      if constexpr (kScaled) sum = Element::finished(sum, job.scaling.divisor, job.scaling.postscale);
      const typename Element::Stored out = Element::store(sum);
      std::memcpy(job.outs[0] + i * kInBytes, &out, kInBytes);
    }
  }

  static const std::byte* place(const TreeInput& input, std::size_t begin) {
    return input.data + begin * (input.partial ? sizeof(T) : kInBytes);
  }

  template <int kInputs>
  void gather(const std::byte** from, std::size_t at, std::size_t begin) const {
    for (int k = 0; k < kInputs; ++at) {
      if (!joins(at)) from[k++] = place(input(at), begin);
    }
  }

  template <int kInputs, bool kScaled>
  void sum() const {
    const std::byte* from[kInputs];
    for (int k = 0; k < kInputs; ++k) from[k] = job_.inputs[k].data;
    const auto put = [scaling = job_.scaling](std::byte* to, const typename L::Value& value) {
      if constexpr (kScaled && L::kScales) {
        L::store(to, L::finished(value, scaling));
      } else {
        static_cast<void>(scaling);  // clang warns about unused captures
        L::store(to, value);
      }
    };
    if (job_.out_count == 1) {
      sum_in_registers<L, kInputs, 1, kInBytes, kInBytes>(from, job_.outs, job_.count, put);
    } else if (job_.out_count == 2) {
      sum_in_registers<L, kInputs, 2, kInBytes, kInBytes>(from, job_.outs, job_.count, put);
    } else {
      sum_in_registers<L, kInputs, kInputs, kInBytes, kInBytes>(from, job_.outs, job_.count, put);
    }
  }

  void push_sum(T* top, const RegularTree& regular, std::size_t at, std::size_t begin, std::size_t count) const {
    if constexpr (kHasVector) {
      with_inputs(regular.inputs, [&](auto inputs) {
        const std::byte* from[inputs];
        gather<inputs>(from, at, begin);
        std::byte* const out = reinterpret_cast<std::byte*>(top);
        sum_in_registers<L, inputs, 1, kInBytes, sizeof(T)>(
            from, &out, count, [](std::byte* to, const typename L::Value& value) { put_vector(to, value); });
      });
    }
  }

  void push(T* top, const TreeInput& input, std::size_t begin, std::size_t count) const {
    if (input.partial) return load<Partial>(top, place(input, begin), count, 1.0);
    load<Element>(top, place(input, begin), count, job_.scaling.prescale);
  }

  // Joins a leaf with the top of the stack. The leaf needs a block of the stack only if it is scaled.
  void fold(T* top, const TreeInput& input, std::size_t begin, std::size_t count) const {
    if (input.partial) return join_input<Partial, Op>(top, place(input, begin), count);
    if (!scales_) return join_input<Element, Op>(top, place(input, begin), count);
    load<Element>(top + kKernelBlock, place(input, begin), count, job_.scaling.prescale);
    join<Op>(top, top + kKernelBlock, count);
  }

  const TreeJob& job_;
  T* stack_;
  const bool scales_;
};

// Calls f(begin, count) for each block of `total` elements.
template <class F>
void for_blocks(std::size_t total, F f) {
  for (std::size_t begin = 0; begin < total; begin += kKernelBlock) {
    f(begin, total - begin < kKernelBlock ? total - begin : kKernelBlock);
  }
}

// Not inlined: setting up its large frame takes longer than summing a few elements.
template <class Element, class Op, std::size_t kBytes>
__attribute__((noinline)) void run_blocks(const TreeJob& job) {
  using T = typename Element::Accumulator;
  const Scaling finish{1.0, job.scaling.postscale, job.scaling.divisor};
  TreeRunner<Element, Op, kBytes> runner(job);
  if (runner.run_in_registers()) return;
  for_blocks(job.count, [&](std::size_t begin, std::size_t n) {
    const T* sum = runner.run(begin, n);
    const std::size_t width = job.to_partial ? sizeof(T) : sizeof(typename Element::Stored);
    std::byte* const out = job.outs[0] + begin * width;
    if (job.to_partial) {
      store<PartialElement<T>>(sum, out, n, Scaling{});
    } else {
      store<Element>(sum, out, n, finish);
    }
    for (std::size_t k = 1; k < job.out_count; ++k) std::memcpy(job.outs[k] + begin * width, out, n * width);
  });
}

template <class Element, class Op, std::size_t kBytes>
TreeRun run_for(const TreeJob& job) {
  const TreeRun few = TreeRunner<Element, Op, kBytes>(job).run_of_few();
  return few != nullptr ? few : run_blocks<Element, Op, kBytes>;
}

// kBytes: size of a vector register; 0: no vectors.
template <std::size_t kBytes>
TreeRun tree_run(DType dtype, ReduceOp op, const TreeJob& job) {
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
