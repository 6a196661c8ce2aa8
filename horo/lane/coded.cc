#include "horo/lane/coded.h"

#include <algorithm>
#include <vector>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"

namespace horo {

void Coded::run(const Job& job, const Participants& participants, const Collective& collective, const Codec& codec) {
  if (singles_.size() > most_singles_) free_least_used();
  std::vector<CodedTensor> tensors;
  tensors.reserve(job.items->size());
  for (const Item& item : *job.items) {
    tensors.push_back({static_cast<const std::byte*>(item.submission.in), static_cast<std::byte*>(item.submission.out),
                       item.spec->elements(), hash64(item.spec->name), state_of(*item.spec, codec)});
  }
  const CodedReport report = run_coded(participants.group, collective, codec, tensors, scratch_);
  if (report.dropped == 0) return;
  log_warning(say(collective.what, ": codec '", codec.name(), "' discards ", report.dropped, " residuals of norm ",
                  report.norm, ": the participating ranks or the length of a tensor changed"));
}

// An unnamed tensor does not recur, so it has no residuals.
CodedState* Coded::state_of(const TensorSpec& spec, const Codec& codec) {
  if (!codec.stateful() || spec.once) return nullptr;
  const std::string key = codec.name() + '\0' + spec.name;
  if (spec.stepwise) return &states_[key];
  Single& single = singles_[key];
  single.used = ++uses_;
  return &single.state;
}

// Frees an eighth at once, because it looks at all of them.
void Coded::free_least_used() {
  std::vector<std::uint64_t> uses;
  for (const auto& [name, single] : singles_) uses.push_back(single.used);
  const std::size_t freed = singles_.size() - most_singles_ + most_singles_ / 8;
  const auto last = uses.begin() + static_cast<std::ptrdiff_t>(freed - 1);
  std::nth_element(uses.begin(), last, uses.end());
  std::erase_if(singles_, [latest = *last](const auto& one) { return one.second.used <= latest; });
}

}  // namespace horo
